// SPDX-License-Identifier: Apache-2.0
// What a workload that follows rounding logs (log64) tells of them: the audits of its steps, added
// up for the measurement of a segment.
#pragma once

#include <potl/checks/request.hpp>
#include <potl/numeric/detail/rounding_session.hpp>

namespace potl::checks {

/// Adds the audit of one step. Of a segment's rejections the first few are listed, each with its
/// proof where that is not too long for a report; the others are counted.
void add(rounding_summary& to, const numeric::step_audit& step);

}  // namespace potl::checks

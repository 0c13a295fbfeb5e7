// SPDX-License-Identifier: Apache-2.0
// What a replayed segment says about the records of its steps: losses, rates, skipped updates.
#pragma once

#include <vector>

#include <potl/checks/replay.hpp>

#include "checks/replay/replay_group.hpp"

namespace potl::checks::detail {

/// One finding per kind of contradiction. Precondition: the measurement's status is ok.
std::vector<finding> judge_losses(const run_view& run, const replay_context& context,
                                  const segment_measurement& measurement);

}  // namespace potl::checks::detail

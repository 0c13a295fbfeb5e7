// SPDX-License-Identifier: Apache-2.0
// The tests of one submission, written into its result: findings and the numbers behind them.
#pragma once

#include <potl/checks/extra_task.hpp>

namespace potl::checks {

/// Binomial test, and the comparison with the controls at both margins. `out` has counted hits.
void test_extra_labels(const extra_task_options& options, const extra_threshold& threshold,
                       extra_result& out);

/// Errors instead of hits.
void test_extra_errors(const extra_task_options& options, const extra_answers& answers,
                       extra_result& out);

}  // namespace potl::checks

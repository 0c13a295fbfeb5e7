// SPDX-License-Identifier: Apache-2.0
// What a replayed segment says about the records of its steps: losses, rates, skipped updates.
#pragma once

#include <optional>
#include <vector>

#include <potl/checks/replay.hpp>

#include "checks/replay/replay_group.hpp"

namespace potl::checks::detail {

/// Whether the record of a measured step, number `i`, flags what was finite in the replay, or the
/// other way round.
bool other_finiteness(const transcript::step_record& record, const segment_measurement& measurement,
                      std::size_t i);

/// In stock arithmetic: the first step that the scaler skipped in the record or in the replay
/// alone, while nothing shows that honest machines agree about it. What follows it cannot be
/// compared.
std::optional<finding> turned_skip(const run_view& run, const replay_context& context,
                                   const segment_measurement& measurement);

/// One finding per kind of contradiction. Precondition: the measurement's status is ok.
std::vector<finding> judge_losses(const run_view& run, const replay_context& context,
                                  const segment_measurement& measurement);

}  // namespace potl::checks::detail

// SPDX-License-Identifier: Apache-2.0
// Distances between a recorded state and its replay, against what the segment changed.
//
// Claims: norms (numeric/distance.hpp) per group of the state tree. Integers, flags, names and
// shapes are compared exactly. A tensor's relative distance is |replayed - recorded| less a
// rounding allowance, over |recorded - start|.
// Assumes: trees as docs/format.md defines them: {"model": {"parameters", "buffers", ...},
// "optimizers", "schedulers", "scaler", "ema", ...}.
// Cost: one pass over the tensors; no copies.
// Cannot detect: a change below the rounding allowance; whether a difference matters for the model.
// Source: H. Jia et al., Proof-of-Learning (2103.05633), section IV-B; SOUNDNESS rules 3, 6 and 7.
#pragma once

#include <vector>

#include <potl/checks/request.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// A tensor's own distance is what exceeds this many units of roundoff of its values.
inline constexpr double rounding_allowance = 4;

/// A parameter tensor that moves less than this share of the group's typical element is measured
/// against that share: gradients of, say, a bias before batch norm are nothing but rounding.
inline constexpr double quiet_share = 1e-3;

/// "parameters", "buffers", "optimizer", "other", in this order; each with the norms of the whole
/// group. What `start` lacks counts as zero there (optimizers create their state in the first
/// step). Scalars outside the parameters (step counters) are in no norm, only among the tensors.
std::vector<group_distance> compare_states(const transcript::state_value& start,
                                           const transcript::state_value& recorded,
                                           const transcript::state_value& replayed);

}  // namespace potl::checks

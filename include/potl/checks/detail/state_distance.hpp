// SPDX-License-Identifier: Apache-2.0
// Distances between a recorded state and its replay, against what the segment changed.
//
// Claims: norms (numeric/detail/distance.hpp) per group of the state tree. Flags, names and shapes
// are compared exactly. Assumes: trees as docs/format/transcript.md defines them:
// {"model": {"parameters", "buffers",
// ...}, "optimizers", "schedulers", "scaler", "ema", ...}.
// Cost: one pass over the tensors; no copies, but a byte for each number of a tensor of which one
// side alone is infinite somewhere.
// Cannot detect: whether a difference matters for the model.
// Source: H. Jia et al., Proof-of-Learning (2103.05633), section IV-B; soundness.md rules 3, 6 and
// 7.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// Stands behind the path of a tensor where its elements without a gradient are meant.
constexpr std::string_view where_still = " where it has no gradient";

/// The same of its elements that are no noise, where others of it are.
constexpr std::string_view where_steady = " where it is no noise";

/// Stands behind the path of what client code keeps where the form differs: nothing within it was
/// compared.
constexpr std::string_view its_form = " (its length, type or text)";

/// "parameters", "buffers", "optimizer", "other", in this order; each with the norms of the whole
/// group. What `start` lacks counts as zero there (optimizers create their state in the first
/// step). What is no float is in no norm, and neither are scalars outside of the parameters: they
/// stand among the tensors, the former only where they differ, and so does where a tensor is
/// infinite on one side alone. The elements of `still` are in all norms, and stand among the
/// tensors by themselves, too, also where they are the same and others of their tensor are not. So
/// do those of `steady`.
std::vector<group_distance> compare_states(const transcript::state_value& start,
                                           const transcript::state_value& recorded,
                                           const transcript::state_value& replayed,
                                           std::span<const still_elements> still = {},
                                           std::span<const still_elements> steady = {});

/// What a model computes with in two states that lie beyond the end of a segment: parameters as a
/// group "next", and "next_buffers".
std::vector<group_distance> compare_next(const transcript::state_value& start,
                                         const transcript::state_value& recorded,
                                         const transcript::state_value& replayed);

}  // namespace potl::checks

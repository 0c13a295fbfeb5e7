// SPDX-License-Identifier: Apache-2.0
// Which elements of a tensor are no noise, where others of it are.
//
// Claims: nothing. A bias of queries, keys and values has gradients that are rounding errors for
// the keys alone: what excuses these must not excuse the values.
// Assumes repeats of the first segment, which starts where the prover has no say.
// Cost: one pass over the tensors for each repeat.
// Cannot detect: elements that are noise in the first segment only.
#pragma once

#include <span>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// One honest repeat of a segment.
struct steady_repeat {
  const transcript::state_value* end = nullptr;
  /// Whether it shows which tensors are noise, and not only, with larger errors, which elements.
  bool shows_tensors = true;
};

/// Of each tensor that a repeat moves by more than `cap` of its update: the elements that every
/// repeat moves by at most `cap` of theirs. Nothing of a tensor of which they are a quarter or
/// less, or fewer than four: so many come out alike by chance.
std::vector<still_elements> steady_elements(const transcript::state_value& start,
                                            const transcript::state_value& replayed,
                                            std::span<const steady_repeat> repeats, double cap);

}  // namespace potl::checks

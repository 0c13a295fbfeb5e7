// SPDX-License-Identifier: Apache-2.0
// Which elements of a tensor are no noise, where others of it are.
//
// Claims: nothing. A bias of queries, keys and values has gradients that are rounding errors for
// the keys alone: what excuses these must not excuse the values.
// Assumes repeats of the first segment, which starts where the prover has no say.
// Cost: one pass over the tensors for each repeat; a byte for each of their elements.
// Cannot detect: elements that are noise in all the segments that were looked at, and in no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/transcript/state.hpp>

namespace potl::checks {

/// Sees honest repeats of a segment one by one, so that only one is held.
class steady_search {
 public:
  /// Both states are kept by whoever searches.
  steady_search(const transcript::state_value& start, const transcript::state_value& replayed,
                double cap);

  /// Takes in one repeat. `shows_tensors`: whether it shows which tensors are noise, and not only,
  /// with larger errors, which elements.
  void see(const transcript::state_value& repeat, bool shows_tensors);

  /// Whether found() may have something.
  bool any_noisy() const;

  /// What another segment moves and leaves steady is steady: an element's gradient may be near zero
  /// in one. What stays is still only if it stays in both.
  void add(const steady_search& other);

  /// Of each tensor that a repeat moves by more than `cap` of its update: the elements that every
  /// repeat moves by at most `cap` of theirs, and those that none moves. Nothing of a tensor of
  /// which the former are three or fewer beside an eighth of what moved: so many come out alike by
  /// chance.
  std::vector<still_elements> found() const;

 private:
  struct seen_tensor {
    std::vector<std::uint8_t> marks;  // of each element: whether it is noise, steady or still
    std::size_t moved = 0;
    bool noisy = false;
  };

  void walk(const transcript::state_value* start, const transcript::state_value& replayed,
            const transcript::state_value* repeat, const std::string& path);
  void take(const transcript::state_tensor* start, const transcript::state_tensor& replayed,
            const transcript::state_tensor* repeat, seen_tensor& of) const;

  const transcript::state_value& start_;
  const transcript::state_value& replayed_;
  double cap_;
  bool shows_tensors_ = true;
  std::map<std::string, seen_tensor> tensors_;
};

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
// The test for lopsided directions. Equal rows are rounded alike, and so are their multiples by
// powers of two: elements with the same digits count once, else padding would accuse.
#pragma once

#include <bit>
#include <cstdint>
#include <unordered_set>

#include <potl/numeric/detail/rounding_referee.hpp>

namespace potl::numeric {

class direction_count {
 public:
  /// `value`: the element's sum, exact or of this side.
  void add(double value, bool up) {
    const auto digits = std::bit_cast<std::uint64_t>(value) & 0xfffffffffffffULL;
    if (!seen_.insert(digits).second) return;
    ++entries_;
    if (up) ++ups_;
  }
  /// Whoever makes a proof chooses how many entries it shows: the bound is for all choices.
  double p_value() const noexcept {
    const double p = direction_p_value(entries_, ups_) * static_cast<double>(max_bias_entries);
    return p < 1 ? p : 1;
  }

 private:
  std::unordered_set<std::uint64_t> seen_;
  std::uint64_t entries_ = 0;
  std::uint64_t ups_ = 0;
};

/// What a session and a step of it may spend of the false alarms.
inline double step_false_alarm(double false_alarm, std::uint64_t step) noexcept {
  const auto t = static_cast<double>(step == 0 ? 1 : step);
  return false_alarm / (t * (t + 1));
}

}  // namespace potl::numeric

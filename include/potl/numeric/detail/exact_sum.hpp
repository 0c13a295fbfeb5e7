// SPDX-License-Identifier: Apache-2.0
// Sums and dot products without any rounding, and one rounding at the end.
//
// Claims: the value held is the exact sum of what was added, whatever the order; the sign, the
// rounding to the grid of b bits (rounding.hpp) and the comparison with doubles are exact.
// Infinities and NaN follow IEEE rules without an order: a NaN, an infinity times zero or two
// infinities of different sign give NaN.
// How: a fixed-point number with digits of 32 bits from 2^-480 to 2^384, in 64-bit words, whose
// carries are settled every 2^29 additions. float32 products need 2^-298 ... 2^257.
// Cost: about 3 ns per product, 250 bytes. Limit: 2^60 additions of magnitude below 2^300.
#pragma once

#include <array>
#include <cstdint>

#include <potl/numeric/detail/rounding.hpp>

namespace potl::numeric {

class exact_sum {
 public:
  /// Adds x. Precondition: x is 0, not finite, or a multiple of 2^-480 below 2^300.
  void add(double x) noexcept;
  /// Adds a * b.
  void add_product(float a, float b) noexcept;

  /// -1, 0 or 1; 0 for NaN.
  int sign() const noexcept;
  /// No infinity and no NaN was added.
  bool is_finite() const noexcept { return special_ == 0; }
  /// Rounded once, to the grid of b bits.
  float round_to(int bits) const noexcept { return numeric::round_to(to_odd(), bits); }
  /// The tie that is nearest to the exact value; its `distance` is rounded.
  tie nearest_tie(int bits) const noexcept { return numeric::nearest_tie(to_odd(), bits); }
  /// Truncated to 53 bits, with the last bit set if anything was cut off (rounding to odd): the
  /// second rounding to at most 51 bits then gives what a single one would.
  double to_odd() const noexcept;

  /// Whether |value - centre| <= radius, decided exactly. False for NaN and infinities.
  bool is_within(double centre, double radius) const noexcept;

 private:
  static constexpr int digits = 27;
  static constexpr int lowest = -480;  // exponent of digit 0

  void add_scaled(std::uint64_t significand, int exponent, bool negative) noexcept;
  void settle() noexcept;
  exact_sum settled() const noexcept;

  std::array<std::int64_t, digits> digit_{};  // settled: all but the last in [0, 2^32)
  std::uint32_t unsettled_ = 0;
  double special_ = 0;  // 0, or the infinity or NaN that the sum has become
};

/// Two rows of operands, in place.
struct dot_operands {
  std::int64_t terms = 0;
  const float* a = nullptr;
  std::int64_t a_stride = 1;
  const float* b = nullptr;
  std::int64_t b_stride = 1;
};

exact_sum exact_dot(const dot_operands& operands) noexcept;

/// W of this element, from its operands alone: 0 when the sum is exact in any order.
double exact_window(const dot_operands& operands) noexcept;

struct settled_element {
  float value = 0;
  bool logged = false;  ///< near a tie: the trainer logs it, the auditor looks it up
};

/// The rounding of one element by log64. `window` is tie_window() of the operands' norms. Kernels
/// call it for every element for which a quick test, Rnd_b(x - W) != Rnd_b(x + W) or a value that
/// is not finite, does not exclude a tie; for others it returns {Rnd_b(x), false} as well.
settled_element settle(double x, double window, int bits, const dot_operands& operands) noexcept;

/// The value of cr32: the exact dot product, rounded once to the grid.
inline float exact_dot(const dot_operands& operands, int bits) noexcept {
  return exact_dot(operands).round_to(bits);
}

}  // namespace potl::numeric

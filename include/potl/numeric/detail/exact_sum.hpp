// SPDX-License-Identifier: Apache-2.0
// Sums and dot products without any rounding, and one rounding at the end.
//
// Claims: the value held is the exact sum of what was added, whatever the order; the sign, the
// rounding to the grid of b bits (rounding.hpp) and the comparison with doubles are exact.
// Infinities and NaN follow IEEE rules without an order: a NaN, an infinity times zero or two
// infinities of different sign give NaN.
// How: a fixed-point number with digits of 32 bits from 2^-480 to 2^384, in 64-bit words, whose
// carries are settled every 2^29 additions. float32 products need 2^-298 ... 2^257.
// Cost: about 5 ns per product, 10 ns of 16 products or where operands leave the cache;
// 250 bytes. Limit: 2^60 additions of magnitude below 2^300.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include <potl/numeric/detail/anywhere.hpp>
#include <potl/numeric/detail/rounding.hpp>

namespace potl::numeric {

class exact_sum {
 public:
  /// Adds x. Precondition: x is 0, not finite, or a multiple of 2^-480 below 2^300.
  void add(double x) noexcept;
  /// Adds a * b.
  POTL_ANYWHERE void add_product(float a, float b) noexcept;

  /// -1, 0 or 1; 0 for NaN.
  int sign() const noexcept;
  /// No infinity and no NaN was added.
  bool is_finite() const noexcept { return special_ == 0; }
  /// Rounded once, to the grid of b bits.
  POTL_ANYWHERE float round_to(int bits) const noexcept {
    return numeric::round_to(to_odd(), bits);
  }
  /// The tie that is nearest to the exact value; its `distance` is rounded.
  tie nearest_tie(int bits) const noexcept { return numeric::nearest_tie(to_odd(), bits); }
  /// Truncated to 53 bits, with the last bit set if anything was cut off (rounding to odd): the
  /// second rounding to at most 51 bits then gives what a single one would.
  POTL_ANYWHERE double to_odd() const noexcept;

  /// Whether |value - centre| <= radius, decided exactly. False for NaN and infinities.
  bool is_within(double centre, double radius) const noexcept;

 private:
  static constexpr int digits = 27;
  static constexpr int lowest = -480;  // exponent of digit 0
  static constexpr std::uint64_t digit_mask = 0xffffffffU;

  POTL_ANYWHERE void add_scaled(std::uint64_t significand, int exponent, bool negative) noexcept;
  POTL_ANYWHERE void settle() noexcept;
  POTL_ANYWHERE exact_sum settled() const noexcept;

  std::array<std::int64_t, digits> digit_{};  // settled: all but the last in [0, 2^32)
  std::uint32_t unsettled_ = 0;
  double special_ = 0;  // 0, or the infinity or NaN that the sum has become
};

POTL_ANYWHERE inline void exact_sum::add_scaled(std::uint64_t significand, int exponent,
                                                bool negative) noexcept {
  const int shift = exponent - lowest;
  const auto at = static_cast<std::size_t>(shift >> 5);
  const int within = shift & 31;
  // 64 bits shifted by at most 31 fill three digits.
  const std::uint64_t low = significand << within;
  const std::uint64_t high = within == 0 ? 0 : significand >> (64 - within);
  const std::int64_t sign = negative ? -1 : 1;
  digit_[at] += sign * static_cast<std::int64_t>(low & digit_mask);
  digit_[at + 1] += sign * static_cast<std::int64_t>(low >> 32);
  digit_[at + 2] += sign * static_cast<std::int64_t>(high);
  if (++unsettled_ == 1U << 29) settle();
}

POTL_ANYWHERE inline void exact_sum::add_product(float a, float b) noexcept {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  if (product == 0) return;
  if (!std::isfinite(product)) {
    special_ += product;
    return;
  }
  const auto word = std::bit_cast<std::uint64_t>(product);
  add_scaled((word & 0xfffffffffffffULL) | 0x10000000000000ULL,
             static_cast<int>((word >> 52) & 0x7ff) - 1075, std::signbit(product));
}

POTL_ANYWHERE inline void exact_sum::settle() noexcept {
  std::int64_t carry = 0;
  for (std::size_t i = 0; i + 1 < digits; ++i) {
    const std::int64_t sum = digit_[i] + carry;
    carry = sum >> 32;  // arithmetic: rounds towards minus infinity
    digit_[i] = sum & static_cast<std::int64_t>(digit_mask);
  }
  digit_[digits - 1] += carry;
  unsettled_ = 0;
}

POTL_ANYWHERE inline exact_sum exact_sum::settled() const noexcept {
  exact_sum out = *this;
  out.settle();
  return out;
}

POTL_ANYWHERE inline double exact_sum::to_odd() const noexcept {
  if (special_ != 0) return special_;
  exact_sum value = settled();
  const bool negative = value.digit_.back() < 0;
  if (negative) {
    for (std::int64_t& digit : value.digit_) digit = -digit;
    value.settle();
  }
  int top = digits - 1;
  while (top >= 0 && value.digit_[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return 0;
  const auto digit = [&](int i) {
    return i < 0 ? 0 : static_cast<std::uint64_t>(value.digit_[static_cast<std::size_t>(i)]);
  };
  // The leading bit and 63 more.
  const int width = 64 - leading_zeros(digit(top));
  std::uint64_t lead = digit(top) << (64 - width);
  int filled = width;
  int at = top - 1;
  bool rest = false;
  while (filled < 64 && at >= 0) {
    const int take = 64 - filled - 32;
    lead |= take >= 0 ? digit(at) << take : digit(at) >> -take;
    if (take < 0) rest = (digit(at) & ((std::uint64_t{1} << -take) - 1)) != 0;
    filled += 32;
    --at;
  }
  for (; at >= 0; --at) rest = rest || digit(at) != 0;
  rest = rest || (lead & 0x7ff) != 0;
  const std::uint64_t significand = (lead >> 11) | (rest ? 1U : 0U);
  const int exponent = lowest + 32 * top + width - 53;
  const double size = std::ldexp(static_cast<double>(significand), exponent);
  return negative ? -size : size;
}

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

// SPDX-License-Identifier: Apache-2.0
// The integers q of xint24 and xint16 as the multiples q 2^-s of a power of two that they stand
// for. In double, sums of their products are exact, and are results when they are rounded to float.
// Everything is local to the including file: some are compiled for one instruction set.
#pragma once

#include <bit>
#include <cstdint>

namespace potl::numeric::conv {
namespace {

/// So large that x + grid has the unit 2^-s: (x + grid) - grid is x rounded to a multiple of it.
/// `largest`: the largest bits of |x|; NaN where it is not finite.
[[maybe_unused]] constexpr double grid_of(std::uint32_t largest, int bits) noexcept {
  // s = bits - 1 + 126 - exponent; 1.5 2^52 2^-s.
  const std::uint32_t field = largest >> 23, exponent = field == 0 ? 1 : field;
  const std::uint32_t biased = 1023 + 52 - 125 - static_cast<std::uint32_t>(bits) + exponent;
  const std::uint32_t high = field == 255 ? 0x7ff80000U : (biased << 20) | 0x80000U;
  return std::bit_cast<double>(std::uint64_t{high} << 32);
}

/// (2^(bits - 1) - 1) 2^-s, the largest multiple.
[[maybe_unused]] constexpr double limit_of(double grid, int bits) noexcept {
  return grid / 0x1.8p52 * static_cast<double>((1 << (bits - 1)) - 1);
}

/// Whether no number is rounded beyond the limit.
[[maybe_unused]] constexpr bool is_within(std::uint32_t largest, int bits) noexcept {
  return (largest & 0x7fffffU) < 0x800000U - (1U << (24 - bits));
}

[[maybe_unused]] constexpr double on_grid(float x, double grid, double limit) noexcept {
  const double rounded = (static_cast<double>(x) + grid) - grid;
  return rounded > limit ? limit : rounded < -limit ? -limit : rounded;
}

}  // namespace
}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// From an integer sum of xint24 or xint16 to the float that it stands for, rounded once. The same
// on a CPU and on a GPU.
#pragma once

#include <cstdint>
#include <limits>

namespace potl::numeric::detail {

__extension__ using wide = __int128;

/// sum * factor; |sum| < 2^126, the factor a power of two or NaN. Apart, because it is seldom
/// needed and often named.
[[gnu::noinline]] constexpr float scaled_back(wide sum, double factor) noexcept {
  if (factor != factor) return std::numeric_limits<float>::quiet_NaN();
  const bool negative = sum < 0;
  wide size = negative ? -sum : sum;
  bool rest = false;
  while (size >= (wide{1} << 53)) {  // to odd: the second rounding then sees the same
    rest = rest || (size & 1) != 0;
    size >>= 1;
    factor *= 2;
  }
  const auto odd = static_cast<std::int64_t>(size) | (rest ? 1 : 0);
  const double value = static_cast<double>(odd) * factor;
  return static_cast<float>(negative ? -value : value) + 0.0F;
}

/// The same of fewer bits.
constexpr float scaled_back(std::int64_t sum, double factor) noexcept {
  // Where the result is normal or zero, a power of two changes nothing but its exponent.
  const double once = static_cast<double>(static_cast<float>(sum)) * factor;
  if (once >= 0x1p-126 || once <= -0x1p-126 || (sum == 0 && once == 0)) {
    return static_cast<float>(once);
  }
  return scaled_back(wide{sum}, factor);
}

/// Of high 2^32 + low.
constexpr float scaled_back(std::int64_t high, std::uint64_t low, double factor) noexcept {
  return scaled_back(wide{high} * (wide{1} << 32) + wide{low}, factor);
}

}  // namespace potl::numeric::detail

// SPDX-License-Identifier: Apache-2.0
// a * b + c with one rounding, for kernels that may use no instruction set in particular.
//
// Where the compiler's target has the instruction, that is it. Elsewhere float32 goes through
// double: the product is exact there, the sum is rounded to odd, and rounding that to float32 gives
// what a single rounding would (53 >= 2 * 24 + 2 bits). A call of libm's fmaf would cost ten times
// as much in an inner loop.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace potl::numeric::detail {

inline float fused(float a, float b, float c) noexcept {
#if defined(__FP_FAST_FMAF)
  return std::fma(a, b, c);
#else
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  // What the addition lost, exactly (Knuth's two-sum); NaN where sum is not finite.
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (addend - part);
  auto word = std::bit_cast<std::int64_t>(sum);
  const bool inexact = lost > 0 || lost < 0;
  // Towards zero when the loss points there, and then the last bit set.
  const bool outward = (lost > 0) == (word >= 0);
  word -= inexact && !outward ? 1 : 0;
  word |= inexact ? 1 : 0;
  return static_cast<float>(std::bit_cast<double>(word));
#endif
}

inline double fused(double a, double b, double c) noexcept { return std::fma(a, b, c); }

}  // namespace potl::numeric::detail

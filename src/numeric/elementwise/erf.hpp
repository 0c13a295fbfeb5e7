// SPDX-License-Identifier: Apache-2.0
// The error function in double lanes.
//
// For a >= 1/2, erfc(a) = exp(-a^2) P((a - 4) / (a + 4)) / (1 + 2 a): one polynomial for the whole
// half-line, after Shepherd and Laframboise, "Chebyshev approximation of (1+2x)exp(x^2)erfc(x)",
// Mathematics of Computation 36 (1981).
#pragma once

#include "exp_log.hpp"

namespace potl::numeric::elementwise {
namespace {

/// erf(x) for |x| <= 1/2.
template <class R>
POTL_INLINE R erf_core(R x) {
  constexpr double series[] = {
      0x1.20dd750429b6dp+0,  -0x1.812746b0379e7p-2,  0x1.ce2f21a042be0p-4,  -0x1.b82ce312889f2p-6,
      0x1.565bcd0e5f585p-8,  -0x1.c02db3f9d5bb2p-11, 0x1.f9a324a2c8c3ep-14, -0x1.f4d1cfdece787p-17,
      0x1.b9d19ced06140p-20, -0x1.5d765c3f83b24p-23, 0x1.c60882c30e6a6p-27};
  return x * polynomial(series, x * x);
}
/// erfc(a + rest) for a >= 0.46; the same for all above 28, where it is 0.
template <class R>
POTL_INLINE R erfc_core(R a, R rest) {
  constexpr double series[] = {
      0x1.3ba5916e9fd7fp+0,  -0x1.1df1ad154a28fp-3,  0x1.f7f5df66fd52bp-7,
      0x1.16ecefcfa53f3p-4,  -0x1.9ddb23c3e7ab8p-4,  0x1.7fee004e11ac0p-4,
      -0x1.0fb06dfe6e7b0p-4, 0x1.3079edf68eeccp-5,   -0x1.0962387d0c606p-6,
      0x1.49c672870f427p-8,  -0x1.8d4aa1f9cd512p-11, -0x1.a1df2ac3849c8p-13,
      0x1.3be0df09e7b49p-13, -0x1.9957e3a7997fep-16, -0x1.78a526496a49ap-17,
      0x1.7f114040f56aap-18, 0x1.41ecc5e8e0bb5p-22,  -0x1.b93e4b093a3f9p-21,
      0x1.1eec1a16287a7p-24, 0x1.c3a305fa52e62p-24,  -0x1.a146baa84c651p-27,
      -0x1.61faef97984d7p-27};
  rest = select(less(constant<R>(28.0), a), constant<R>(0.0), rest);
  a = smaller(constant<R>(28.0), a);
  const R four = constant<R>(4.0);
  const R t = (a - four) / (a + four);
  const pair<R> square = product(a, a);
  const R front = polynomial(series, t) / fma(constant<R>(2.0), a, constant<R>(1.0));
  const R low = fma(a + a, rest, square.low);
  return exp_sum(negative(square.high), negative(low)) * front;
}

template <class R>
POTL_INLINE R erf(R x) {
  const R a = magnitude(x);
  const R far = with_sign(constant<R>(1.0) - erfc_core(a, constant<R>(0.0)), x);
  return select(less(a, constant<R>(0.5)), erf_core(x), far);
}
/// erfc(x + rest); the rest is far below x.
template <class R>
POTL_INLINE R erfc_sum(R x, R rest) {
  const R a = magnitude(x);
  const R zero = constant<R>(0.0);
  const auto below = less(x, zero);
  const R tail = erfc_core(a, select(below, negative(rest), rest));
  const R far = select(below, constant<R>(2.0) - tail, tail);
  return select(less(a, constant<R>(0.5)), constant<R>(1.0) - erf_core(x), far);
}
template <class R>
POTL_INLINE R erfc(R x) {
  return erfc_sum(x, constant<R>(0.0));
}
/// The normal distribution function, to the left tail.
template <class R>
POTL_INLINE R normal(R x) {
  const pair<R> z = product(x, constant<R>(-0x1.6a09e667f3bcdp-1));
  const R low = fma(x, constant<R>(0x1.bdd3413b26456p-55), z.low);
  return constant<R>(0.5) * erfc_sum(z.high, low);
}

}  // namespace
}  // namespace potl::numeric::elementwise

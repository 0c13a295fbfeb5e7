// SPDX-License-Identifier: Apache-2.0
// Hyperbolic and sigmoid functions, activations and their derivatives, in double lanes.
#pragma once

#include "erf.hpp"
#include "pow.hpp"
#include "trigonometry.hpp"

namespace potl::numeric::elementwise {
namespace {

template <class R>
POTL_INLINE R tanh(R x) {
  const R e = expm1(constant<R>(2.0) * smaller(constant<R>(22.0), magnitude(x)));
  return with_sign(e / (e + constant<R>(2.0)), x);
}
/// exp(a) / 2 where exp(a) alone might overflow.
template <class R>
POTL_INLINE R half_exp(R a) {
  const R root = exp(constant<R>(0.5) * a);
  return (constant<R>(0.5) * root) * root;
}
template <class R>
POTL_INLINE R sinh(R x) {
  const R a = magnitude(x);
  const R e = expm1(smaller(constant<R>(30.0), a));
  const R near = constant<R>(0.5) * (e + e / (e + constant<R>(1.0)));
  return with_sign(select(less(a, constant<R>(22.0)), near, half_exp(a)), x);
}
template <class R>
POTL_INLINE R cosh(R x) {
  const R a = magnitude(x);
  const R e = exp(smaller(constant<R>(30.0), a));
  const R near = fma(constant<R>(0.5), e, constant<R>(0.5) / e);
  return select(less(a, constant<R>(22.0)), near, half_exp(a));
}

template <class R>
POTL_INLINE R sigmoid(R x) {
  const R e = exp(negative(magnitude(x)));
  const R one = constant<R>(1.0);
  return select(less(x, constant<R>(0.0)), e, one) / (one + e);
}
template <class R>
POTL_INLINE R softplus(R x) {
  const R e = exp(negative(magnitude(x)));
  return larger(constant<R>(0.0), x) + log1p(e);
}
template <class R>
POTL_INLINE R log_sigmoid(R x) {
  return negative(softplus(negative(x)));
}

/// -0 at minus infinity, which is the limit of x f(x) where f falls like exp(x).
template <class R>
POTL_INLINE R left_limit(R x, R value) {
  return select(equal(x, negative(infinity<R>())), negative(constant<R>(0.0)), value);
}
template <class R>
POTL_INLINE R gelu(R x) {
  return left_limit(x, x * normal(x));
}
/// 2 sqrt(2 / pi) (x + 0.044715 x^3): gelu_tanh is x sigmoid of it.
template <class R>
POTL_INLINE R gelu_tanh_inner(R x) {
  const R scale = constant<R>(2.0 * 0x1.9884533d43651p-1);
  return scale * fma(constant<R>(0.044715) * (x * x), x, x);
}
template <class R>
POTL_INLINE R gelu_tanh(R x) {
  return left_limit(x, x * sigmoid(gelu_tanh_inner(x)));
}
template <class R>
POTL_INLINE R silu(R x) {
  return left_limit(x, x * sigmoid(x));
}
/// tanh(softplus(x)) is n / (n + 2).
template <class R>
POTL_INLINE R mish_inner(R x) {
  const R e = exp(smaller(constant<R>(40.0), x));
  return e * (e + constant<R>(2.0));
}
template <class R>
POTL_INLINE R mish(R x) {
  const R n = mish_inner(x);
  return left_limit(x, x * (n / (n + constant<R>(2.0))));
}

// Derivatives of x. `settled` is the value where x times a vanishing factor would be NaN.

template <class R>
POTL_INLINE R within(R x, double limit, R value, R settled) {
  return select(less(constant<R>(limit), magnitude(x)), settled, value);
}
template <class R>
POTL_INLINE R gelu_slope(R x) {
  const R distribution = normal(x);
  const R density = constant<R>(0x1.9884533d43651p-2) * exp(constant<R>(-0.5) * (x * x));
  return within(x, 40.0, fma(x, density, distribution), distribution);
}
template <class R>
POTL_INLINE R gelu_tanh_slope(R x) {
  const R u = gelu_tanh_inner(x);
  const R s = sigmoid(u);
  const R scale = constant<R>(2.0 * 0x1.9884533d43651p-1);
  const R slope = scale * fma(constant<R>(3 * 0.044715), x * x, constant<R>(1.0));
  const R rest = sigmoid(negative(u));
  return within(x, 50.0, fma(x * slope, s * rest, s), s);
}
template <class R>
POTL_INLINE R silu_slope(R x) {
  const R s = sigmoid(x);
  return within(x, 800.0, s * fma(x, sigmoid(negative(x)), constant<R>(1.0)), s);
}
template <class R>
POTL_INLINE R mish_slope(R x) {
  const R n = mish_inner(x);
  const R d = n + constant<R>(2.0);
  const R t = n / d;
  const R rest = fma(constant<R>(4.0), n, constant<R>(4.0)) / (d * d);
  return within(x, 800.0, fma(x * sigmoid(x), rest, t), t);
}

template <class R>
POTL_INLINE R logaddexp(R x, R y) {
  const R high = larger(x, y);
  const R value = high + log1p(exp(negative(magnitude(x - y))));
  const R result = select(equal(x, y), x + constant<R>(ln2_high), value);
  return select(either(is_nan(x), is_nan(y)), quiet_nan<R>(), result);
}
template <class R>
POTL_INLINE R xlogy(R x, R y) {
  const auto nothing = both(equal(x, constant<R>(0.0)), negate(is_nan(y)));
  return select(nothing, constant<R>(0.0), x * log(y));
}

}  // namespace
}  // namespace potl::numeric::elementwise

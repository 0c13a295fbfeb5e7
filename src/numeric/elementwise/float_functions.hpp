// SPDX-License-Identifier: Apache-2.0
// The functions that training calls most, in float lanes: polynomials that are as short as 1 ulp
// allows (gelu: 7, in its left tail), weighted minimax fits whose coefficients are rounded in turn.
#pragma once

#include "lanes.hpp"

namespace potl::numeric::elementwise {
namespace {
namespace in_float {

constexpr double log2_e = 0x1.715476p+0;
/// 15 bits, so that products with exponents are exact.
constexpr double ln2_high = 0x1.62e4p-1;
constexpr double ln2_low = 0x1.7f7d1cp-20;
constexpr double round_magic = 0x1.8p+23;
constexpr double power_magic = 0x1.8p+23 + 127;

// lanes_avx512.hpp has shorter forms of scale and split_log, with the same results.

/// p 2^n for an integer n from -250 to 129: one rounding, of subnormal results.
template <class R>
POTL_INLINE R scale(R p, R n) {
  const R half = fma(n, constant<R>(0.5), constant<R>(power_magic));
  const R rest = (n - (half - constant<R>(power_magic))) + constant<R>(power_magic);
  return p * shift_left<23>(half) * shift_left<23>(rest);
}

/// x = n ln 2 + r: n is an integer, |r| <= 0.3468.
template <class R>
struct exp_parts {
  R n, r;
};
template <class R>
POTL_INLINE exp_parts<R> split_exp(R x) {
  const R n = fma(x, constant<R>(log2_e), constant<R>(round_magic)) - constant<R>(round_magic);
  const R first = fma(n, constant<R>(-ln2_high), x);
  return {n, fma(n, constant<R>(-ln2_low), first)};
}
/// exp(r) - 1.
template <class R>
POTL_INLINE R expm1_core(R r) {
  constexpr double series[] = {0x1.fffffcp-2, 0x1.555492p-3, 0x1.5558b2p-5, 0x1.123994p-7,
                               0x1.6a4b44p-10};
  return fma(r * r, polynomial(series, r), r);
}
template <class R>
POTL_INLINE R exp(R x) {
  x = larger(constant<R>(-104.0), smaller(constant<R>(89.0), x));
  const exp_parts<R> parts = in_float::split_exp(x);
  return in_float::scale(constant<R>(1.0) + in_float::expm1_core(parts.r), parts.n);
}

template <class R>
POTL_INLINE log_parts<R> split_log(R x) {
  const auto tiny = less(x, constant<R>(FLT_MIN));
  x = select(tiny, x * constant<R>(0x1p24), x);
  // The exponent's field counts from the bits of 0.75; as a number it is put below 2^23.
  const R moved = add_bits(x, R::bits(0x3F800000u - 0x3F400000u));
  const R field = bit_or(shift_right<23>(moved), R::bits(0x4B000000u));
  const R e = field - select(tiny, constant<R>(0x1p23 + 127 + 24), constant<R>(0x1p23 + 127));
  // What lies beyond 0.75 of that binade, from 0.75 on.
  const R m = add_bits(bit_and(moved, R::bits(0x007FFFFFu)), R::bits(0x3F400000u));
  return {e, m};
}
/// Below 0: NaN; 0: -infinity; infinity and NaN as they are.
template <class R>
POTL_INLINE R log_special(R x, R value) {
  const R zero = constant<R>(0.0);
  value = select(less(zero, x), value, quiet_nan<R>());
  value = select(equal(x, zero), negative(infinity<R>()), value);
  return select(equal(x, infinity<R>()), x, value);
}
template <class R>
POTL_INLINE R log(R x) {
  constexpr double series[] = {-0x1.000000p-1, 0x1.5555a4p-2,  -0x1.00004ap-2,
                               0x1.99699ep-3,  -0x1.54ed96p-3, 0x1.28807ap-3,
                               -0x1.0d98f0p-3, 0x1.acf4a8p-4,  -0x1.71e32cp-5};
  const log_parts<R> parts = in_float::split_log(x);
  const R f = parts.m - constant<R>(1.0);
  // e ln 2 + f as a sum and what its rounding lost.
  const R sum = fma(parts.e, constant<R>(ln2_high), f);
  const R lost = f - fma(parts.e, constant<R>(-ln2_high), sum);
  const R rest = fma(f * f, polynomial(series, f), parts.e * constant<R>(ln2_low));
  return in_float::log_special(x, sum + (rest + lost));
}

template <class R>
POTL_INLINE R tanh(R x) {
  constexpr double series[] = {-0x1.55553cp-2, 0x1.110be4p-3, -0x1.b9623cp-5, 0x1.6009c4p-6,
                               -0x1.04608cp-7, 0x1.2da29cp-9, -0x1.77d4c6p-12};
  const R a = magnitude(x);
  const R s = x * x;
  const R near = fma(s * polynomial(series, s), x, x);
  // 1 - 2 / (exp(2 a) + 1); 2^n is 2^29 at most.
  const R one = constant<R>(1.0);
  const R twice = smaller(constant<R>(20.0), a + a);
  const exp_parts<R> parts = in_float::split_exp(twice);
  const R power = shift_left<23>(parts.n + constant<R>(power_magic));
  const R d = fma(power, in_float::expm1_core(parts.r), power + one);
  const R far = with_sign(one - constant<R>(2.0) / d, x);
  return select(less(a, one), near, far);
}

template <class R>
POTL_INLINE R erf(R x) {
  constexpr double near_series[] = {0x1.06eba8p-3, -0x1.812740p-2,  0x1.ce2d64p-4, -0x1.b8011ap-6,
                                    0x1.544a14p-8, -0x1.a6098ep-11, 0x1.4f6360p-14};
  constexpr double far_series[] = {-0x1.0778dcp-3, -0x1.45328ep-1, -0x1.b32568p-4, 0x1.855122p-6,
                                   -0x1.dd6ba8p-9, 0x1.52795cp-12, -0x1.78d112p-17};
  const R a = magnitude(x);
  const R s = x * x;
  const R near = fma(polynomial(near_series, s), x, x);
  // 1 - exp(-a + a P(a)); from 3.95 on that is 1.
  const R t = smaller(constant<R>(3.95), a);
  const exp_parts<R> parts = in_float::split_exp(fma(polynomial(far_series, t), t, negative(t)));
  const R power = shift_left<23>(parts.n + constant<R>(power_magic));
  const R p = constant<R>(1.0) + in_float::expm1_core(parts.r);
  const R far = with_sign(fma(negative(power), p, constant<R>(1.0)), x);
  return select(less(a, constant<R>(0.927734375)), near, far);
}

/// sigmoid(x) = (high + low) 2^n.
template <class R>
struct sigmoid_parts {
  R high, low, n;
};
template <class R>
POTL_INLINE sigmoid_parts<R> split_sigmoid(R x) {
  const R one = constant<R>(1.0), zero = constant<R>(0.0);
  const R a = larger(constant<R>(-112.0), negative(magnitude(x)));
  const exp_parts<R> parts = in_float::split_exp(a);
  // e = exp(-|x|) = (p + p_low) 2^n
  const R r = in_float::expm1_core(parts.r);
  const R first = fma(parts.n, constant<R>(-ln2_high), a);
  const R r_low = fma(parts.n, constant<R>(-ln2_low), first - parts.r);
  const R p = one + r;
  const R p_low = (r - (p - one)) + r_low;
  const R e = in_float::scale(p, parts.n);
  // y + y_low = 1 / (1 + e)
  const R d = one + e;
  const R d_low = fma(e, p_low, (one - d) + e);
  const R y = one / d;
  const R y_low = y * (fma(negative(d), y, one) - d_low * y);
  const auto below = less(x, zero);
  const R high = select(below, p * y, y);
  const R low = select(below, fma(p, y, negative(high)) + fma(p, y_low, p_low * y), y_low);
  return {high, low, select(below, parts.n, zero)};
}
template <class R>
POTL_INLINE R sigmoid(R x) {
  const sigmoid_parts<R> s = in_float::split_sigmoid(x);
  return in_float::scale(s.high + s.low, s.n);
}
template <class R>
POTL_INLINE R silu(R x) {
  const sigmoid_parts<R> s = in_float::split_sigmoid(x);
  const R limited = larger(constant<R>(-200.0), x);
  const R value = limited * s.high;
  const R sum = value + fma(limited, s.low, fma(limited, s.high, negative(value)));
  // Above, sigmoid is 1, and at infinity the low part would be NaN.
  return select(less(x, constant<R>(200.0)), in_float::scale(sum, s.n), x);
}
template <class R>
POTL_INLINE R silu_slope(R x) {
  const R one = constant<R>(1.0);
  const R e = in_float::exp(negative(magnitude(x)));
  const R y = one / (one + e);
  const R w = e * y;
  const auto below = less(x, constant<R>(0.0));
  const R limited = larger(constant<R>(-200.0), smaller(constant<R>(200.0), x));
  return select(below, w, y) * fma(limited, select(below, y, w), one);
}

/// With u = min(|x|, 14.5), beyond which all is 0, and v = u / (1 + u / 4): the tail of the normal
/// distribution is exp(-u^2 / 2) (1 - v / 4) ratio, and the exponential is (1 + e) 2^n.
template <class R>
struct normal_parts {
  R u, v, e, n, ratio;
};
template <class R>
POTL_INLINE normal_parts<R> split_normal(R x) {
  constexpr double series[] = {0.5,
                               -0x1.18845ep-2,
                               0x1.4ef958p-4,
                               -0x1.98df66p-7,
                               0x1.3f610ap-12,
                               0x1.474270p-13,
                               0x1.85e7a8p-18,
                               -0x1.2a3f0ap-17,
                               0x1.613abap-20,
                               -0x1.0f8306p-24};
  const R u = smaller(constant<R>(14.5), magnitude(x));
  const R square = u * u;
  const R lost = fma(u, u, negative(square));
  exp_parts<R> parts = in_float::split_exp(constant<R>(-0.5) * square);
  parts.r = fma(constant<R>(-0.5), lost, parts.r);
  const R v = u / fma(constant<R>(0.25), u, constant<R>(1.0));
  const R ratio = polynomial(series, v);
  return {u, v, in_float::expm1_core(parts.r), parts.n, ratio};
}
template <class R>
POTL_INLINE R gelu(R x) {
  const normal_parts<R> parts = in_float::split_normal(x);
  const R product = parts.v * parts.ratio;
  const R tail = in_float::scale(fma(product, parts.e, product), parts.n);
  return select(less(constant<R>(0.0), x), x - tail, with_sign(tail, x));
}
template <class R>
POTL_INLINE R gelu_slope(R x) {
  const R one = constant<R>(1.0);
  const normal_parts<R> parts = in_float::split_normal(x);
  const R e = in_float::scale(one + parts.e, parts.n);
  const R tail = (fma(constant<R>(-0.25), parts.v, one) * parts.ratio) * e;
  const R distribution = select(less(constant<R>(0.0), x), one - tail, tail);
  return fma(with_sign(parts.u, x), e * constant<R>(0x1.988454p-2), distribution);
}

}  // namespace in_float
}  // namespace
}  // namespace potl::numeric::elementwise

// SPDX-License-Identifier: Apache-2.0
// The functions that training calls most, in float lanes: polynomials, whole or one for each of 16
// intervals, as short as 1 ulp allows. scripts/elementwise_coefficients.py computes the numbers.
#pragma once

#include "float_tables.hpp"
#include "lanes.hpp"

namespace potl::numeric::elementwise {
namespace {
namespace in_float {

inline constexpr double log2_e = 0x1.715476p+0;
/// 15 bits, so that products with exponents are exact.
inline constexpr double ln2_high = 0x1.62e4p-1;
inline constexpr double ln2_low = 0x1.7f7d1cp-20;
/// 24 bits, and what they lost.
inline constexpr double ln2_rounded = 0x1.62e43p-1;
inline constexpr double ln2_rest = -0x1.05c61p-29;
inline constexpr double round_magic = 0x1.8p+23;
/// The fraction has 4 bits.
inline constexpr double sixteenth_magic = 0x1.8p+19;
inline constexpr double power_magic = 0x1.8p+23 + 127;

// lanes_avx512.hpp has shorter forms of scale, scale_floor, exp_range, exp_rest, split_log,
// log_special, limited and signed_sum; the functions' results are the same.

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
/// (exp(r) - 1 - r) / r^2
template <class R>
POTL_INLINE R expm1_series(R r) {
  constexpr double series[] = {0x1.fffffcp-2, 0x1.555492p-3, 0x1.5558b2p-5, 0x1.123994p-7,
                               0x1.6a4b44p-10};
  return polynomial(series, r);
}
/// exp(r) - 1.
template <class R>
POTL_INLINE R expm1_core(R r) {
  return fma(r * r, in_float::expm1_series(r), r);
}
/// Beyond these limits the result is 0 or infinity.
template <class R>
POTL_INLINE R exp_range(R x) {
  return larger(constant<R>(-104.0), smaller(constant<R>(89.0), x));
}
template <class R>
POTL_INLINE R exp_rest(R r) {
  return r;
}
/// p 2^floor(n) for a sum whose lowest 4 bits are the fraction of n.
template <class R>
POTL_INLINE R scale_floor(R p, R sum, R) {
  const R whole = bit_and(sum, R::bits(0xFFFFFFF0u)) - constant<R>(sixteenth_magic);
  return in_float::scale(p, whole);
}
/// x = n ln 2 + r, n a multiple of 1/16: 2^n from a table, exp(r) = (1 + d) (1 + q).
template <class R>
POTL_INLINE R exp(R x) {
  constexpr double series[] = {-0x1.99027ep-8, 0x1.fccdfcp-1, 0x1.fcd2dap-2, 0x1.5314dp-3};
  x = in_float::exp_range(x);
  const R sum = fma(x, constant<R>(log2_e), constant<R>(sixteenth_magic));
  const R n = sum - constant<R>(sixteenth_magic);
  // The first difference is exact: n ln2_rounded has no bit below those of the result.
  const R first = fma(n, constant<R>(-ln2_rounded), x);
  const R r = in_float::exp_rest(fma(n, constant<R>(-ln2_rest), first));
  const R power = lookup(exp_table(), sum);
  return in_float::scale_floor(fma(power, polynomial(series, r), power), sum, n);
}

/// x = m 2^e with m from 1 to 2.
template <class R>
POTL_INLINE log_parts<R> split_log(R x) {
  const auto tiny = less(x, constant<R>(FLT_MIN));
  x = select(tiny, x * constant<R>(0x1p24), x);
  // The exponent's field as a number is put below 2^23.
  const R field = bit_or(shift_right<23>(x), R::bits(0x4B000000u));
  const R e = field - select(tiny, constant<R>(0x1p23 + 127 + 24), constant<R>(0x1p23 + 127));
  const R m = bit_or(bit_and(x, R::bits(0x007FFFFFu)), R::bits(0x3F800000u));
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
  constexpr double series[] = {-0x1.fffffap-2, 0x1.55586ep-2, -0x1.004016p-2, 0x1.86ecd2p-3};
  const log_parts<R> parts = in_float::split_log(x);
  // log x = e ln 2 - log c + log(1 + r), r = m c - 1: exact, as c has 5 bits. Where log x is near
  // 0, r alone is not: there e ln 2 - log c is exactly 0.
  const R index = shift_right<19>(parts.m);
  const R r = fma(parts.m, lookup(log_factor(), index), constant<R>(-1.0));
  const R high = fma(parts.e, constant<R>(ln2_high), lookup(log_high(), index));
  const R low = fma(parts.e, constant<R>(ln2_low), lookup(log_low(), index));
  const R value = high + (r + fma(r * r, polynomial(series, r), low));
  return in_float::log_special(x, value);
}

/// The polynomial of the interval of a, where a scale is from 0 to 15, is start + slope offset,
/// with the offset from the interval's centre in the table's first row. Intervals of a scale are
/// 1/4 long up to 1, 1/2 up to 3, 1 up to 7, 2 up to 15.
template <class R>
struct piece {
  R start, slope, offset;
};
template <class R, std::size_t Rows>
POTL_INLINE piece<R> piece_of(const float (&table)[Rows][16], double scale, R a) {
  const R index = shift_right<21>(fma(a, constant<R>(scale), constant<R>(1.0)));
  const R offset = a - lookup(table[0], index);
  R slope = lookup(table[Rows - 1], index);
  for (std::size_t row = Rows - 1; row-- > 2;)
    slope = fma(slope, offset, lookup(table[row], index));
  return {lookup(table[1], index), slope, offset};
}
/// min(limit, |x|); of NaN anything.
template <class R>
POTL_INLINE R limited(R limit, R x) {
  return smaller(limit, magnitude(x));
}
/// a + b, which is not negative, with the sign of x; the one NaN where x is NaN.
template <class R>
POTL_INLINE R signed_sum(R a, R b, R x) {
  return select(is_nan(x), quiet_nan<R>(), with_sign(a + b, x));
}
/// An odd function with slope about 1 at 0 that goes to 1: the table has f(a) - min(a, knee).
template <class R, std::size_t Rows>
POTL_INLINE R saturating(const float (&table)[Rows][16], double scale, double knee, double limit,
                         R x) {
  const R a = in_float::limited(constant<R>(limit), x);
  const piece<R> part = in_float::piece_of(table, scale, a);
  const R off = fma(part.slope, part.offset, part.start);
  return in_float::signed_sum(smaller(constant<R>(knee), a), off, x);
}
template <class R>
POTL_INLINE R tanh(R x) {
  return in_float::saturating(tanh_table(), tanh_scale, tanh_knee, 9.02, x);
}
template <class R>
POTL_INLINE R erf(R x) {
  return in_float::saturating(erf_table(), 1.0, 1.0, 3.96875, x);
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
  const R curve = parts.r * parts.r * in_float::expm1_series(parts.r);
  const R r = parts.r + curve;
  const R first = fma(parts.n, constant<R>(-ln2_high), a);
  const R r_low = fma(parts.n, constant<R>(-ln2_low), first - parts.r);
  const R p = one + r;
  const R p_low = (r - (p - one)) + ((parts.r - r) + curve + r_low);
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
/// silu about its minimum, where neighbours differ by less than the roundings of silu() below: few
/// of them go into this form.
template <class R>
POTL_INLINE R silu_valley(R d) {
  constexpr double series[] = {-0x1.66fd7ep-14, 0x1.bdd7a2p-4,   0x1.9063aap-5,  0x1.35a13p-8,
                               -0x1.8efa52p-9,  -0x1.206916p-10, 0x1.e2e624p-16, 0x1.94701ep-14};
  return fma(polynomial(series, d), d, constant<R>(-0x1.1d25cep-2));
}
template <class R>
POTL_INLINE R silu(R x) {
  const sigmoid_parts<R> s = in_float::split_sigmoid(x);
  const R limited = larger(constant<R>(-200.0), x);
  const R value = limited * s.high;
  const R sum = value + fma(limited, s.low, fma(limited, s.high, negative(value)));
  // Above, sigmoid is 1, and at infinity the low part would be NaN.
  const R far = select(less(x, constant<R>(200.0)), in_float::scale(sum, s.n), x);
  const R d = x - constant<R>(-0x1.476336p+0);
  return select(less(magnitude(d), constant<R>(0.5)), in_float::silu_valley(d), far);
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
/// gelu(x) is x - tail above 0, else -tail; the tail is |x| times that of the normal distribution.
template <class R>
POTL_INLINE R gelu_of_tail(R x, R tail) {
  return select(less(constant<R>(0.0), x), x - tail, with_sign(tail, x));
}
/// The tail is exp(-u^2 / 2) g, where the table has g - min(u / 2, 1 / 4).
template <class R>
POTL_INLINE R gelu_far(R x) {
  constexpr double series[] = {0.5,          0x1.555554p-3,  0x1.5554e8p-5,
                               0x1.11131p-7, 0x1.6d4ccep-10, 0x1.9df7a8p-13};
  const R u = smaller(constant<R>(14.5), magnitude(x));
  const R half = constant<R>(-0.5) * u;
  const R square = half * u;
  const R lost = fma(half, u, negative(square));
  // -u^2 / 2 = n ln 2 + first + rest: first is exact, and large against the rest.
  const R n = fma(square, constant<R>(log2_e), constant<R>(round_magic)) - constant<R>(round_magic);
  const R first = fma(n, constant<R>(-ln2_high), square);
  const R rest = fma(n, constant<R>(-ln2_low), lost);
  const R curve = first * first * polynomial(series, first);
  const R base = smaller(constant<R>(0.25), negative(half));
  const piece<R> part = in_float::piece_of(gelu_table(), 1.0, u);
  const R g = base + fma(part.slope, part.offset, part.start);
  const R g_low = fma(part.slope, part.offset, part.start - (g - base));
  // g (1 + first + curve) (1 + rest + rest^2 / 2)
  const R grown = fma(constant<R>(0.5), rest, first + curve);
  const R small = fma(g, fma(rest, grown, rest) + curve, fma(g_low, first, g_low));
  const R tail = in_float::scale(g + fma(g, first, small), n);
  return in_float::gelu_of_tail(x, tail);
}
/// Near 0 the normal distribution is polynomials about multiples of 1/8. Few vectors have lanes
/// that are not, and those lanes have a form of their own.
template <class R>
POTL_INLINE R gelu(R x) {
  const R near = constant<R>(3.90625), magic = constant<R>(0x1.8p+20);
  const R a = magnitude(x);
  const R u = smaller(near, a);
  const R index = u + magic;
  const R t = u - (index - magic);
  R rest = lookup(normal_table()[6], index);
  for (int row = 5; row > 0; --row) rest = fma(rest, t, lookup(normal_table()[row], index));
  const R tail = fma(u, lookup(normal_table()[0], index), rest);
  const R value = in_float::gelu_of_tail(x, tail);
  const auto is_far = less(near, a);
  if (!any(is_far)) return value;
  return select(is_far, in_float::gelu_far(x), value);
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

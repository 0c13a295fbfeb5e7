// SPDX-License-Identifier: Apache-2.0
// Exponentials and logarithms in double lanes. Each is within 1 ulp of double
// (docs/reference/elementwise.md gives the measured bounds), and, rounded to float, almost always
// the correctly rounded result.
#pragma once

#include "lanes.hpp"

namespace potl::numeric::elementwise {
namespace {

inline constexpr double log2_e = 0x1.71547652b82fep+0;
inline constexpr double ln2_high = 0x1.62e42fefa39efp-1;
inline constexpr double ln2_low = 0x1.abc9e3b39803fp-56;
/// Adding this to a number below 2^51 in magnitude leaves its nearest integer in the low bits.
inline constexpr double round_magic = 0x1.8p+52;
/// The same plus the bias of the exponent: shifted left by 52, those bits are 2^n.
inline constexpr double power_magic = 0x1.8p+52 + 1023;

/// p 2^n for an integer n from -1080 to 1026, by two exact factors: only a subnormal result is
/// rounded, once.
template <class R>
POTL_INLINE R scale(R p, R n) {
  const R half = fma(n, constant<R>(0.5), constant<R>(power_magic));
  const R rest = (n - (half - constant<R>(power_magic))) + constant<R>(power_magic);
  return p * shift_left<52>(half) * shift_left<52>(rest);
}

/// exp(r) - 1 for |r| <= 0.3466, given r and what was rounded off it.
template <class R>
POTL_INLINE R expm1_core(R r, R rest) {
  constexpr double series[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                               1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                               1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  return r + fma(r * r, polynomial(series, r), rest);
}

/// x = n ln 2 + r + rest, |r| <= 0.3466.
template <class R>
struct exp_parts {
  R n, r, rest;
};
template <class R>
POTL_INLINE exp_parts<R> split_exp(R x) {
  const R n = fma(x, constant<R>(log2_e), constant<R>(round_magic)) - constant<R>(round_magic);
  const R first = fma(n, constant<R>(-ln2_high), x);  // exact
  const R r = fma(n, constant<R>(-ln2_low), first);
  return {n, r, fma(n, constant<R>(-ln2_low), first - r)};
}

/// e^(r + rest) 2^n.
template <class R>
POTL_INLINE R exp_of(const exp_parts<R>& parts) {
  return scale(constant<R>(1.0) + expm1_core(parts.r, parts.rest), parts.n);
}
template <class R>
POTL_INLINE R exp_range(R x) {
  return larger(constant<R>(-746.0), smaller(constant<R>(710.0), x));
}
/// exp(x + correction); |correction| is below 2^-40.
template <class R>
POTL_INLINE R exp_sum(R x, R correction) {
  exp_parts<R> parts = split_exp(exp_range(x));
  // Into r itself: what is left in `rest` is not multiplied by e^r.
  const R r = parts.r + correction;
  parts.rest = parts.rest + ((parts.r - r) + correction);
  parts.r = r;
  return exp_of(parts);
}
template <class R>
POTL_INLINE R exp(R x) {
  return exp_of(split_exp(exp_range(x)));
}
template <class R>
POTL_INLINE R exp2(R x) {
  x = larger(constant<R>(-1076.0), smaller(constant<R>(1025.0), x));
  const R n = (x + constant<R>(round_magic)) - constant<R>(round_magic);
  const R f = x - n;  // exact
  const R r = f * constant<R>(ln2_high);
  const R rest = fma(f, constant<R>(ln2_low), fma(f, constant<R>(ln2_high), negative(r)));
  return scale(constant<R>(1.0) + expm1_core(r, rest), n);
}

template <class R>
POTL_INLINE R expm1(R x) {
  const R zero = constant<R>(0.0);
  const R original = x;
  x = larger(constant<R>(-40.0), smaller(constant<R>(710.0), x));
  const exp_parts<R> parts = split_exp(x);
  const R p = expm1_core(parts.r, parts.rest);
  // 2^(n-1), which exists up to n = 1024.
  const R half = shift_left<52>(parts.n + constant<R>(power_magic - 1.0));
  const R twice = fma(half, p, half - constant<R>(0.5));
  const R result = select(equal(parts.n, zero), p, twice + twice);
  return select(equal(original, zero), original, result);
}

/// m in [0.707, 1.414].
template <class R>
POTL_INLINE log_parts<R> split_log(R x) {
  const auto tiny = less(x, constant<R>(DBL_MIN));
  x = select(tiny, x * constant<R>(0x1p54), x);
  // The biased exponent as a number: put below 2^52.
  const R biased = bit_or(shift_right<52>(x), R::bits(0x4330000000000000u));
  R e = biased - select(tiny, constant<R>(0x1p52 + 1023 + 54), constant<R>(0x1p52 + 1023));
  R m = bit_or(bit_and(x, R::bits(0x000FFFFFFFFFFFFFu)), R::bits(0x3FF0000000000000u));
  const auto big = less(constant<R>(1.4142135623730951), m);
  m = select(big, m * constant<R>(0.5), m);
  e = select(big, e + constant<R>(1.0), e);
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

/// The operations of potl::exact_log (docs/format/randomness.md), which has no fused ones.
template <class R>
POTL_INLINE R log(R x) {
  constexpr double series[] = {2.0 / 3.0,  2.0 / 5.0,  2.0 / 7.0,  2.0 / 9.0,  2.0 / 11.0,
                               2.0 / 13.0, 2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0};
  // log(2) in two parts: the first has 32 bits, so that its product with an exponent is exact.
  constexpr double high = 0x1.62e42feep-1;
  constexpr double low = 0x1.a39ef35793c76p-33;
  const log_parts<R> parts = split_log(x);
  const R f = parts.m - constant<R>(1.0);
  const R s = f / (constant<R>(2.0) + f);
  const R z = s * s;
  R value = constant<R>(series[9]);
  for (int i = 9; i-- > 0;) value = value * z + constant<R>(series[i]);
  const R half_square = constant<R>(0.5) * f * f;
  const R inner = s * (half_square + z * value) + parts.e * constant<R>(low);
  return log_special(x, parts.e * constant<R>(high) - ((half_square - inner) - f));
}

template <class R>
POTL_INLINE R log1p(R x) {
  const R one = constant<R>(1.0);
  const R u = one + x;
  const R lost = select(less(x, one), x - (u - one), one - (u - x));
  const R value = log(u) + lost / u;
  // 1 + x is exact at -1, below it there is no logarithm, and infinity has nothing lost.
  const R special = select(less(negative(one), x), value, log(u));
  const R finite = select(equal(x, infinity<R>()), x, special);
  return select(equal(x, constant<R>(0.0)), x, finite);
}

/// A sum of two numbers that is more exact than one.
template <class R>
struct pair {
  R high, low;
};
/// high + low, as a pair; |high| >= |low| or high is 0.
template <class R>
POTL_INLINE pair<R> fast_sum(R high, R low) {
  const R sum = high + low;
  return {sum, low - (sum - high)};
}
template <class R>
POTL_INLINE pair<R> product(R a, R b) {
  const R value = a * b;
  return {value, fma(a, b, negative(value))};
}

/// The logarithm of a positive finite number to about 2^-64, relatively.
template <class R>
POTL_INLINE pair<R> log_pair(R x) {
  constexpr double series[] = {2.0 / 5.0,  2.0 / 7.0,  2.0 / 9.0,  2.0 / 11.0, 2.0 / 13.0,
                               2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0};
  constexpr double third_high = 0x1.5555555555555p-1;
  constexpr double third_low = 0x1.5555555555555p-55;
  constexpr double high = 0x1.62e42feep-1;
  constexpr double low = 0x1.a39ef35793c76p-33;
  const R one = constant<R>(1.0);
  const log_parts<R> parts = split_log(x);
  // s = (m - 1) / (m + 1), m + 1 and s as pairs.
  const R f = parts.m - one;
  const R d = parts.m + one;
  const R d_low = select(less(parts.m, one), parts.m - (d - one), one - (d - parts.m));
  const R s = f / d;
  const R s_low = (fma(negative(s), d, f) - s * d_low) / d;
  // 2 s + 2/3 s^3 + s^5 (...), s^3 as a pair.
  const pair<R> square = product(s, s);
  const R square_low = fma(s + s, s_low, square.low);
  const pair<R> cube = product(s, square.high);
  const R cube_low = cube.low + fma(s, square_low, s_low * square.high);
  const pair<R> third = product(constant<R>(third_high), cube.high);
  const R third_rest =
      third.low + fma(constant<R>(third_high), cube_low, constant<R>(third_low) * cube.high);
  const R tail = cube.high * square.high * polynomial(series, square.high);
  const pair<R> front = fast_sum(s + s, third.high);
  const R front_rest = front.low + ((s_low + s_low) + (third_rest + tail));
  // e ln 2 is 0 or larger than the rest.
  const R whole = parts.e * constant<R>(high);
  const R part = fma(parts.e, constant<R>(low), front_rest);
  const pair<R> sum = fast_sum(whole, front.high);
  const R last = select(equal(parts.e, constant<R>(0.0)), front_rest, sum.low + part);
  const R first = select(equal(parts.e, constant<R>(0.0)), front.high, sum.high);
  return fast_sum(first, last);
}

template <class R>
POTL_INLINE R log_times(R x, double factor_high, double factor_low) {
  const pair<R> value = log_pair(x);
  const R rest = fma(value.low, constant<R>(factor_high), value.high * constant<R>(factor_low));
  return log_special(x, fma(value.high, constant<R>(factor_high), rest));
}
template <class R>
POTL_INLINE R log2(R x) {
  // Of a power of two exactly: there m is 1.
  const log_parts<R> parts = split_log(x);
  const R value = log_times(x, log2_e, 0x1.777d0ffda0d24p-56);
  const R exact = log_special(x, parts.e);
  return select(equal(parts.m, constant<R>(1.0)), exact, value);
}
template <class R>
POTL_INLINE R log10(R x) {
  return log_times(x, 0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57);
}

}  // namespace
}  // namespace potl::numeric::elementwise

// SPDX-License-Identifier: Apache-2.0
// Powers in double lanes, within 1 ulp; special cases as in IEEE 754-2019, 9.2.1 (pow).
#pragma once

#include "exp_log.hpp"

namespace potl::numeric::elementwise {
namespace {

/// Where y is an integer, and where an odd one.
template <class R>
POTL_INLINE auto integer_and_odd(R y) {
  const R a = magnitude(y);
  const R step = constant<R>(0x1p52);
  const R half = a * constant<R>(0.5);
  const auto large = negate(less(a, step));
  const auto whole = either(large, equal((a + step) - step, a));
  const auto even = equal((half + step) - step, half);
  struct answer {
    typename R::mask whole, odd;
  };
  return answer{whole, both(both(whole, less(a, constant<R>(0x1p53))), negate(even))};
}

template <class R>
POTL_INLINE R pow(R x, R y) {
  const R zero = constant<R>(0.0);
  const R one = constant<R>(1.0);
  const R two = constant<R>(2.0);
  const R a = magnitude(x);
  // exp(y log a); beyond 800 only the sign matters, and the low part could be NaN.
  const pair<R> log_a = log_pair(a);
  const R p = y * log_a.high;
  const R p_low = fma(y, log_a.high, negative(p)) + y * log_a.low;
  const R correction = select(less(magnitude(p), constant<R>(800.0)), p_low, zero);
  R value = exp_sum(p, correction);

  const R far = infinity<R>();
  value = select(equal(a, zero), select(less(y, zero), far, zero), value);
  value = select(equal(a, far), select(less(zero, y), far, zero), value);
  value = select(equal(a, one), one, value);
  const auto kind = integer_and_odd(y);
  value = select(both(kind.odd, sign_bit(x)), negative(value), value);
  const auto undefined = both(both(less(x, zero), less(a, far)), negate(kind.whole));
  value = select(undefined, quiet_nan<R>(), value);
  value = select(either(is_nan(x), is_nan(y)), quiet_nan<R>(), value);
  value = select(equal(y, two), x * x, value);
  return select(either(equal(y, zero), equal(x, one)), one, value);
}

/// The powers that models take most, beside 1 and 2: formula(|x|) is within 2^-51 of the true one,
/// or is it. Where both ends of that distance round to one float, pow, which is within 1 ulp,
/// rounds to it too. kind(formula) for such a y; false for others.
template <class R, class Kind>
POTL_INLINE bool with_common_power(double y, const Kind& kind) {
  using W = typename R::wide;
  const W one = constant<W>(1.0);
  if (y == 3) return kind([](W a) { return (a * a) * a; }), true;
  if (y == 0.5) return kind([](W a) { return sqrt(a); }), true;
  if (y == -0.5) return kind([=](W a) { return one / sqrt(a); }), true;
  if (y == -1) return kind([=](W a) { return one / a; }), true;
  if (y == -2) return kind([=](W a) { return one / (a * a); }), true;
  return false;
}

/// x^y in float lanes, y being one of those; formula is its.
template <class R, class Formula>
POTL_INLINE R common_power(R x, double y, const Formula& formula) {
  using W = typename R::wide;
  const W up = constant<W>(0x1.0000000000004p+0), down = constant<W>(0x1.ffffffffffff8p-1);
  const R a = magnitude(x);
  W low[R::wides], high[R::wides];
  for (int i = 0; i < R::wides; ++i) {
    const W value = formula(a.widen(i));
    low[i] = value * down;
    high[i] = value * up;
  }
  R value = R::narrow(low);
  if (any(negate(either(equal(value, R::narrow(high)), is_nan(value))))) {
    W parts[R::wides];
    for (int i = 0; i < R::wides; ++i) parts[i] = pow(x.widen(i), constant<W>(y));
    return canonical(R::narrow(parts));
  }
  const R zero = constant<R>(0.0);
  if (y == 3 || y == -1) {
    value = select(sign_bit(x), negative(value), value);
  } else if (y == 0.5 || y == -0.5) {
    value = select(both(less(x, zero), less(a, infinity<R>())), quiet_nan<R>(), value);
  }
  return canonical(value);
}

}  // namespace
}  // namespace potl::numeric::elementwise

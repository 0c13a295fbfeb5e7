// SPDX-License-Identifier: Apache-2.0
// The functions of numeric/detail/ieee.hpp for any form of lanes: the one source for every
// instruction set and for CUDA. Exact remainders are given by who calls: rest(x, y) is
// x - y trunc(x / y).
#pragma once

#include <cmath>

#include <potl/numeric/detail/ieee.hpp>

#include "numeric/elementwise/lanes.hpp"

namespace potl::numeric::ieee {
namespace {

using elementwise::both;
using elementwise::constant;
using elementwise::either;
using elementwise::negate;

/// From here on every number is whole; up to it, adding it rounds to whole numbers.
template <class R>
POTL_INLINE R spacing() {
  return constant<R>(sizeof(typename R::element) == 4 ? 0x1p23 : 0x1p52);
}
template <class R>
POTL_INLINE R trunc(R x) {
  const R size = magnitude(x), near = (size + spacing<R>()) - spacing<R>();
  const R below = select(less(size, near), near - constant<R>(1.0), near);
  return with_sign(select(less(size, spacing<R>()), below, size), x);
}
template <class E>
POTL_INLINE elementwise::single<E> trunc(elementwise::single<E> x) {  // without lanes: no branch
  return elementwise::single<E>(std::trunc(x.v));
}
template <class R>
POTL_INLINE R floor(R x) {
  const R whole = trunc(x);
  return select(less(x, whole), whole - constant<R>(1.0), whole);
}

/// Is the rest not 0, of another sign than the divisor?
template <class R>
POTL_INLINE typename R::mask falls_short(R y, R rest) {
  return both(negate(equal(rest, constant<R>(0.0))), sign_bit(bit_xor(y, rest)));
}
template <class R>
POTL_INLINE R floor_quotient(R x, R y, R rest) {
  const R zero = constant<R>(0.0), one = constant<R>(1.0), direct = x / y;
  const R exact = (x - rest) / y;
  const R quotient = select(falls_short(y, rest), exact - one, exact);
  const R whole = floor(quotient);
  const R nearest = select(less(constant<R>(0.5), quotient - whole), whole + one, whole);
  const R signed_zero = with_sign(zero, direct);
  return select(equal(y, zero), direct, select(equal(quotient, zero), signed_zero, nearest));
}

// Equal numbers have equal bits, but for zeros: +0 has none.
template <class R>
POTL_INLINE R larger_number(R x, R y) {
  return select(equal(x, y), bit_and(x, y), larger(x, y));
}
template <class R>
POTL_INLINE R smaller_number(R x, R y) {
  return select(equal(x, y), bit_or(x, y), smaller(x, y));
}
/// `value`, or `other` where one of the operands is NaN.
template <class R>
POTL_INLINE R of_numbers(R x, R y, R value, R other) {
  return select(either(is_nan(x), is_nan(y)), other, value);
}
template <class R>
POTL_INLINE R maximum(R x, R y) {
  return of_numbers(x, y, larger_number(x, y), elementwise::quiet_nan<R>());
}
template <class R>
POTL_INLINE R minimum(R x, R y) {
  return of_numbers(x, y, smaller_number(x, y), elementwise::quiet_nan<R>());
}
template <class R>
POTL_INLINE R fmax(R x, R y) {
  return of_numbers(x, y, larger_number(x, y), canonical(select(is_nan(x), y, x)));
}
template <class R>
POTL_INLINE R fmin(R x, R y) {
  return of_numbers(x, y, smaller_number(x, y), canonical(select(is_nan(x), y, x)));
}

template <ieee_binary Function, class R, class Rest>
POTL_INLINE R compute(R x, R y, const Rest& rest) {
  if constexpr (Function == ieee_binary::fmod) {
    return canonical(rest(x, y));
  } else if constexpr (Function == ieee_binary::remainder) {
    const R left = rest(x, y);
    return canonical(select(falls_short(y, left), left + y, left));
  } else if constexpr (Function == ieee_binary::floor_divide) {
    return canonical(floor_quotient(x, y, rest(x, y)));
  } else if constexpr (Function == ieee_binary::trunc_divide) {
    return canonical(trunc(x / y));
  } else if constexpr (Function == ieee_binary::maximum) {
    return maximum(x, y);
  } else if constexpr (Function == ieee_binary::minimum) {
    return minimum(x, y);
  } else if constexpr (Function == ieee_binary::fmax) {
    return fmax(x, y);
  } else {
    return fmin(x, y);
  }
}

/// x less its nearest within the bounds, which is +0 where x is that itself.
template <class R>
POTL_INLINE R soft_shrink(R x, R lambda) {
  return canonical(x - larger(negative(lambda), smaller(lambda, x)));
}
template <class R>
POTL_INLINE R hard_swish(R x) {
  const R ramp = smaller(constant<R>(6.0), larger(constant<R>(0.0), x + constant<R>(3.0)));
  return canonical(ramp * x / constant<R>(6.0));
}
template <class R>
POTL_INLINE R hard_swish_gradient(R dy, R x) {
  const R three = constant<R>(3.0);
  const R inside = (x / three + constant<R>(0.5)) * dy;
  const R from_low = select(either(less(x, three), equal(x, three)), inside, dy);
  return canonical(select(less(x, constant<R>(-3.0)), constant<R>(0.0), from_low));
}
template <class R>
POTL_INLINE R pass_between(R value, R x, R low, R high) {
  return select(both(less(low, x), less(x, high)), canonical(value), constant<R>(0.0));
}
template <class R>
POTL_INLINE R pass_beyond(R value, R x, R low, R high) {
  return select(either(less(x, low), less(high, x)), canonical(value), constant<R>(0.0));
}

}  // namespace
}  // namespace potl::numeric::ieee

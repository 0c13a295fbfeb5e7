// SPDX-License-Identifier: Apache-2.0
// Loops over elements for any form of lanes. Included by one source file for each instruction set,
// which compiles its own copies (see numeric/elementwise/lanes.hpp).
#pragma once

#include "functions.hpp"
#include "kernels.hpp"
#include "numeric/elementwise/loops.hpp"

namespace potl::numeric::ieee {
namespace {

template <class R>
[[gnu::noinline]] R rest_of_each(R x, R y) {
  using Real = typename R::element;
  Real a[R::lanes], b[R::lanes];
  x.store(a);
  y.store(b);
  for (int i = 0; i < R::lanes; ++i) {
    if constexpr (sizeof(Real) == 4) {
      a[i] = __builtin_fmodf(a[i], b[i]);
    } else {
      a[i] = __builtin_fmod(a[i], b[i]);
    }
  }
  return R::load(a);
}

/// x - y trunc(x / y), with the sign of x. A quotient whose fraction has a bit is rounded to its
/// whole number or to the next one: either leaves a rest that is a number, and exact.
template <class R>
POTL_INLINE R rest_of_quotient(R x, R y) {
  if constexpr (R::lanes > 1) {
    const R a = magnitude(x), b = magnitude(y), quotient = a / b;
    const auto has_fraction = less(quotient, spacing<R>());
    if (!any(negate(both(has_fraction, less(b, elementwise::infinity<R>()))))) {
      const R rest = fma(negative(trunc(quotient)), b, a);
      return with_sign(select(less(rest, constant<R>(0.0)), rest + b, rest), x);
    }
  }
  return rest_of_each(x, y);
}

/// out = function(values of the operands)
template <std::size_t In, class R, class Function>
POTL_INLINE void loop(const stream<typename R::element>* in, typename R::element* out,
                      std::size_t count, const Function& function) {
  elementwise::for_lanes<R, In, 1, R::lanes == 1 ? 1 : 4>(
      count, in, &out, false, [&](const R* v, R* y) { y[0] = function(v); });
}

template <ieee_binary Function, class R>
void two_of(const stream<typename R::element>* in, typename R::element* out, std::size_t count) {
  loop<2, R>(in, out, count, [](const R* v) {
    return compute<Function>(v[0], v[1], [](R x, R y) { return rest_of_quotient(x, y); });
  });
}

template <class R>
void two(ieee_binary function, const stream<typename R::element>* in, typename R::element* out,
         std::size_t count) {
  switch (function) {
    case ieee_binary::fmod: return two_of<ieee_binary::fmod, R>(in, out, count);
    case ieee_binary::remainder: return two_of<ieee_binary::remainder, R>(in, out, count);
    case ieee_binary::floor_divide: return two_of<ieee_binary::floor_divide, R>(in, out, count);
    case ieee_binary::trunc_divide: return two_of<ieee_binary::trunc_divide, R>(in, out, count);
    case ieee_binary::maximum: return two_of<ieee_binary::maximum, R>(in, out, count);
    case ieee_binary::minimum: return two_of<ieee_binary::minimum, R>(in, out, count);
    case ieee_binary::fmax: return two_of<ieee_binary::fmax, R>(in, out, count);
    case ieee_binary::fmin: return two_of<ieee_binary::fmin, R>(in, out, count);
  }
}

template <class R>
void elements(formula function, const stream<typename R::element>* in, typename R::element n,
              typename R::element m, typename R::element* out, std::size_t count) {
  const R first(n), second(m);
  switch (function) {
    case formula::square_root:
      return loop<1, R>(in, out, count, [](const R* v) { return canonical(sqrt(v[0])); });
    case formula::soft_shrink:
      return loop<1, R>(in, out, count, [&](const R* v) { return soft_shrink(v[0], first); });
    case formula::hard_swish:
      return loop<1, R>(in, out, count, [](const R* v) { return hard_swish(v[0]); });
    case formula::hard_swish_gradient:
      return loop<2, R>(in, out, count, [](const R* v) { return hard_swish_gradient(v[0], v[1]); });
    case formula::pass_between:
      return loop<2, R>(in, out, count,
                        [&](const R* v) { return pass_between(v[0], v[1], first, second); });
    case formula::pass_beyond:
      return loop<2, R>(in, out, count,
                        [&](const R* v) { return pass_beyond(v[0], v[1], first, second); });
    case formula::choose_below:
      return loop<3, R>(in, out, count,
                        [&](const R* v) { return select(less(v[0], first), v[1], v[2]); });
  }
}

template <class R>
constexpr kernels<typename R::element> kernels_of{&two<R>, &elements<R>};

}  // namespace
}  // namespace potl::numeric::ieee

// SPDX-License-Identifier: Apache-2.0
// The functions of two numbers of numeric/detail/ieee.hpp, for the CPU and for CUDA. Exact
// remainders are given by who calls: rest(x, y) is x - y trunc(x / y).
#pragma once

#include <cmath>
#include <limits>

#include <potl/numeric/detail/ieee.hpp>

#include "numeric/elementwise/lanes.hpp"

namespace potl::numeric::ieee {
namespace {

template <class Real>
POTL_INLINE Real canonical(Real value) {
  return value != value ? std::numeric_limits<Real>::quiet_NaN() : value;
}

template <class Real>
POTL_INLINE Real floor_quotient(Real x, Real y, Real rest) {
  if (y == 0) return canonical(x / y);
  Real quotient = (x - rest) / y;
  if (rest != 0 && (y < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(Real{0}, x / y);
  const Real whole = std::floor(quotient);
  return canonical(quotient - whole > Real{0.5} ? whole + 1 : whole);
}

// Without branches, so that loops of them become vectors. Equal numbers have equal bits, but for
// zeros: +0 has none.
template <class Real>
POTL_INLINE Real larger(Real x, Real y) {
  using one = elementwise::single<Real>;
  const Real equal = elementwise::bit_and(one(x), one(y)).v;
  return x == y ? equal : x > y ? x : y;
}

template <class Real>
POTL_INLINE Real smaller(Real x, Real y) {
  using one = elementwise::single<Real>;
  const Real equal = elementwise::bit_or(one(x), one(y)).v;
  return x == y ? equal : x < y ? x : y;
}

template <class Real, class Rest>
POTL_INLINE Real compute(ieee_binary function, Real x, Real y, const Rest& rest) {
  constexpr Real nan = std::numeric_limits<Real>::quiet_NaN();
  const bool none = x != x || y != y;
  const Real other = x != x ? y : x;  // what fmax and fmin give when one is NaN
  switch (function) {
    case ieee_binary::fmod: return canonical(rest(x, y));
    case ieee_binary::remainder: {
      const Real left = rest(x, y);
      return canonical(left != 0 && (y < 0) != (left < 0) ? left + y : left);
    }
    case ieee_binary::floor_divide: return floor_quotient(x, y, rest(x, y));
    case ieee_binary::trunc_divide: return canonical(std::trunc(x / y));
    case ieee_binary::maximum: return none ? nan : larger(x, y);
    case ieee_binary::minimum: return none ? nan : smaller(x, y);
    case ieee_binary::fmax: return none ? canonical(other) : larger(x, y);
    case ieee_binary::fmin: return none ? canonical(other) : smaller(x, y);
  }
  return x;
}

}  // namespace
}  // namespace potl::numeric::ieee

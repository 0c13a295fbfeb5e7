// SPDX-License-Identifier: Apache-2.0
// Exact values of the functions: long double, which has 11 bits more than double here.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include <potl/numeric/elementwise.hpp>

namespace potl::test {

using numeric::gradient;
using numeric::unary;

struct reference {
  unary function;
  long double (*exact)(long double);
  double double_bound;          ///< ulp, see docs/elementwise.md
  double double_range = 1e300;  ///< largest |x| of that bound
  double float_bound = 1;       ///< ulp
};

constexpr gradient all_gradients[] = {gradient::tanh,     gradient::sigmoid, gradient::log_sigmoid,
                                      gradient::softplus, gradient::gelu,    gradient::gelu_tanh,
                                      gradient::silu,     gradient::mish};

namespace exactly {
using real = long double;
inline real sigmoid(real x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
inline real softplus(real x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
inline real weighted(real x, real factor) { return std::isinf(x) && x < 0 ? -0.0L : x * factor; }
inline real erfinv(real y) {
  if (!(std::fabs(y) < 1)) return y == 1 || y == -1 ? y * HUGE_VALL : std::nan("");
  real x = evaluate(unary::erfinv, static_cast<double>(y));
  // erfc keeps what 1 - erf would lose.
  for (int i = 0; i < 3 && y != 0; ++i) {
    const real a = std::fabs(x);
    const real off =
        std::fabs(y) < 0.5L ? std::erf(a) - std::fabs(y) : (1 - std::fabs(y)) - std::erfc(a);
    x = std::copysign(a - off / (1.1283791670955125739L * std::exp(-a * a)), y);
  }
  return x;
}
}  // namespace exactly

inline const std::vector<reference>& references() {
  using real = long double;
  using namespace exactly;
  static const std::vector<reference> all{
      {unary::exp, [](real x) { return std::exp(x); }, 1},
      {unary::exp2, [](real x) { return std::exp2(x); }, 1},
      {unary::expm1, [](real x) { return std::expm1(x); }, 2},
      {unary::log, [](real x) { return std::log(x); }, 1},
      {unary::log2, [](real x) { return std::log2(x); }, 1},
      {unary::log10, [](real x) { return std::log10(x); }, 1},
      {unary::log1p, [](real x) { return std::log1p(x); }, 2},
      {unary::rsqrt, [](real x) { return x == 0 ? real(1) / x : 1 / std::sqrt(x); }, 1},
      {unary::sin, [](real x) { return std::sin(x); }, 1},
      {unary::cos, [](real x) { return std::cos(x); }, 1},
      {unary::tan, [](real x) { return std::tan(x); }, 3},
      {unary::sinh, [](real x) { return std::sinh(x); }, 3},
      {unary::cosh, [](real x) { return std::cosh(x); }, 3},
      {unary::tanh, [](real x) { return std::tanh(x); }, 3},
      {unary::sigmoid, [](real x) { return sigmoid(x); }, 3},
      {unary::log_sigmoid, [](real x) { return -softplus(-x); }, 3},
      {unary::softplus, [](real x) { return softplus(x); }, 3},
      {unary::erf, [](real x) { return std::erf(x); }, 3},
      {unary::erfc, [](real x) { return std::erfc(x); }, 4},
      {unary::erfinv, [](real x) { return erfinv(x); }, 8},
      {unary::gelu, [](real x) { return weighted(x, std::erfc(-x * std::sqrt(0.5L)) / 2); }, 5, 37,
       7},
      {unary::gelu_tanh,
       [](real x) {
         const real u = 2 * std::sqrt(2 / std::acos(-1.0L)) * (x + 0.044715L * x * x * x);
         return weighted(x, sigmoid(u));
       },
       1000, 8},
      {unary::silu, [](real x) { return weighted(x, sigmoid(x)); }, 4},
      {unary::mish, [](real x) { return weighted(x, std::tanh(softplus(x))); }, 6},
  };
  return all;
}

/// How many units in the last place `got` is off, with the unit at the exact value.
template <class Real>
double ulps(Real got, long double exact) {
  if (exact != exact || got != got) return exact != exact && got != got ? 0 : 1e9;
  const Real rounded = static_cast<Real>(exact);
  if (std::isinf(rounded) || std::isinf(got)) {
    if (got == rounded) return 0;
    if (!std::isinf(exact) && std::isinf(got)) return 1;  // at the edge of overflow
    return 1e9;
  }
  constexpr int digits = std::numeric_limits<Real>::digits;
  constexpr int lowest = std::numeric_limits<Real>::min_exponent;
  int exponent = lowest;
  if (rounded != 0) std::frexp(rounded, &exponent);
  const long double unit = std::ldexp(1.0L, (exponent > lowest ? exponent : lowest) - digits);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / unit);
}

}  // namespace potl::test

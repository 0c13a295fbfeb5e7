// SPDX-License-Identifier: Apache-2.0
// Exact values of the functions: in long double, which has 11 bits more than double here, and in
// double for floats.
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
  double (*in_double)(double);
  double double_bound;  ///< ulp, see docs/reference/elementwise.md
  double double_range;  ///< largest |x| of that bound
};
/// Both from one generic lambda.
template <class Function>
reference reference_for(unary function, Function, double bound, double range = 1e300) {
  return {function, [](long double x) { return Function{}(x); },
          [](double x) { return Function{}(x); }, bound, range};
}

constexpr gradient all_gradients[] = {gradient::tanh,     gradient::sigmoid, gradient::log_sigmoid,
                                      gradient::softplus, gradient::gelu,    gradient::gelu_tanh,
                                      gradient::silu,     gradient::mish};

namespace exactly {
template <class Real>
Real sigmoid(Real x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
template <class Real>
Real softplus(Real x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
template <class Real>
Real weighted(Real x, Real factor) {
  return std::isinf(x) && x < 0 ? -Real(0) : x * factor;
}
template <class Real>
Real erfinv(Real y) {
  if (!(std::fabs(y) < 1)) return y == 1 || y == -1 ? y * Real(HUGE_VAL) : std::nan("");
  Real x = evaluate(unary::erfinv, static_cast<double>(y));
  // erfc keeps what 1 - erf would lose.
  for (int i = 0; i < 3 && y != 0; ++i) {
    const Real a = std::fabs(x);
    const Real off =
        std::fabs(y) < Real(0.5) ? std::erf(a) - std::fabs(y) : (1 - std::fabs(y)) - std::erfc(a);
    x = std::copysign(a - off / (Real(1.1283791670955125739L) * std::exp(-a * a)), y);
  }
  return x;
}
template <class Real>
constexpr Real root_of_half = Real(0.70710678118654752440L);
/// 2 sqrt(2 / pi)
template <class Real>
constexpr Real gelu_tanh_factor = Real(1.59576912160573071176L);
}  // namespace exactly

inline const std::vector<reference>& references() {
  using namespace exactly;
  static const std::vector<reference> all{
      reference_for(
          unary::exp, [](auto x) { return std::exp(x); }, 1),
      reference_for(
          unary::exp2, [](auto x) { return std::exp2(x); }, 1),
      reference_for(
          unary::expm1, [](auto x) { return std::expm1(x); }, 2),
      reference_for(
          unary::log, [](auto x) { return std::log(x); }, 1),
      reference_for(
          unary::log2, [](auto x) { return std::log2(x); }, 1),
      reference_for(
          unary::log10, [](auto x) { return std::log10(x); }, 1),
      reference_for(
          unary::log1p, [](auto x) { return std::log1p(x); }, 2),
      reference_for(
          unary::rsqrt, [](auto x) { return 1 / (x == 0 ? x : std::sqrt(x)); }, 1),
      reference_for(
          unary::sin, [](auto x) { return std::sin(x); }, 1),
      reference_for(
          unary::cos, [](auto x) { return std::cos(x); }, 1),
      reference_for(
          unary::tan, [](auto x) { return std::tan(x); }, 3),
      reference_for(
          unary::sinh, [](auto x) { return std::sinh(x); }, 3),
      reference_for(
          unary::cosh, [](auto x) { return std::cosh(x); }, 3),
      reference_for(
          unary::tanh, [](auto x) { return std::tanh(x); }, 3),
      reference_for(
          unary::sigmoid, [](auto x) { return sigmoid(x); }, 3),
      reference_for(
          unary::log_sigmoid, [](auto x) { return -softplus(-x); }, 3),
      reference_for(
          unary::softplus, [](auto x) { return softplus(x); }, 3),
      reference_for(
          unary::erf, [](auto x) { return std::erf(x); }, 3),
      reference_for(
          unary::erfc, [](auto x) { return std::erfc(x); }, 4),
      reference_for(
          unary::erfinv, [](auto x) { return erfinv(x); }, 8),
      reference_for(
          unary::gelu,
          [](auto x) { return weighted(x, std::erfc(-x * root_of_half<decltype(x)>) / 2); }, 5, 37),
      reference_for(
          unary::gelu_tanh,
          [](auto x) {
            using real = decltype(x);
            const real u = gelu_tanh_factor<real> * (x + real(0.044715L) * x * x * x);
            return weighted(x, sigmoid(u));
          },
          1000, 8),
      reference_for(
          unary::silu, [](auto x) { return weighted(x, sigmoid(x)); }, 4),
      reference_for(
          unary::mish, [](auto x) { return weighted(x, std::tanh(softplus(x))); }, 6),
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

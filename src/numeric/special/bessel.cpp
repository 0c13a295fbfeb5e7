// SPDX-License-Identifier: Apache-2.0
// Modified Bessel functions: the power series, whose terms are all positive (Abramowitz and Stegun
// 9.6.10), up to 30, and beyond it the asymptotic one (9.7.1).
#include "functions.hpp"
#include "scalar.hpp"

namespace potl::numeric::specials {

double bessel_scaled(int order, double x) noexcept {
  const double a = magnitude(x);
  if (a != a) return a;
  double value = 0.0;
  if (a <= 30.0) {
    const double quarter = 0.25 * a * a;
    double term = 1.0, sum = 1.0;
    for (int k = 1; term > 0x1p-60 * sum; ++k) {
      term *= quarter / (static_cast<double>(k) * (k + order));
      sum += term;
    }
    value = exp(-a) * (order == 0 ? sum : 0.5 * a * sum);
  } else {
    const double four_squares = 4.0 * order;
    double term = 1.0, sum = 1.0;
    for (int k = 1; magnitude(term) > 0x1p-60; ++k) {
      const double odd = 2.0 * k - 1.0;
      term *= (odd * odd - four_squares) / (8.0 * k) / a;
      sum += term;
    }
    value = sum / root(2 * pi) / root(a);
  }
  return order == 0 ? value : with_sign(value, x);
}

}  // namespace potl::numeric::specials

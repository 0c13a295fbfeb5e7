// SPDX-License-Identifier: Apache-2.0
// The middle of the normal quantile, for one number and for vectors of them. The order of
// operations is part of the definition: changing it changes bits.
#pragma once

#include <cstddef>

// Unnamed: each instruction set gets its own copy.
namespace potl::quantiles {
namespace {

/// Horner's rule, product and sum each rounded; coefficients from the constant upwards.
template <class Real, std::size_t Count>
inline Real polynomial(const double (&coefficients)[Count], Real x) noexcept {
  Real value(coefficients[Count - 1]);
  for (std::size_t i = Count - 1; i-- > 0;) value = value * x + Real(coefficients[i]);
  return value;
}

// AS 241, PPND16: |q| <= 0.425.
inline constexpr double centre_end = 0.425;
inline constexpr double centre_numerator[] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                              1.9715909503065514427e3, 1.3731693765509461125e4,
                                              4.5921953931549871457e4, 6.7265770927008700853e4,
                                              3.3430575583588128105e4, 2.5090809287301226727e3};
inline constexpr double centre_denominator[] = {1.0,
                                                4.2313330701600911252e1,
                                                6.8718700749205790830e2,
                                                5.3941960214247511077e3,
                                                2.1213794301586595867e4,
                                                3.9307895800092710610e4,
                                                2.8729085735721942674e4,
                                                5.2264952788528545610e3};

/// The quantile at 0.5 + q, |q| at most `centre_end`.
template <class Real>
inline Real centre(Real q) noexcept {
  const Real r = Real(0.180625) - q * q;
  return q * quantiles::polynomial(centre_numerator, r) /
         quantiles::polynomial(centre_denominator, r);
}

}  // namespace
}  // namespace potl::quantiles

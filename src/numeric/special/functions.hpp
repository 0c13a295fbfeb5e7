// SPDX-License-Identifier: Apache-2.0
// The functions of numeric/detail/special.hpp, of one double; special.cpp says which is which.
#pragma once

namespace potl::numeric::specials {

double atan2(double y, double x) noexcept;
double acosh(double x) noexcept;
double asinh(double x) noexcept;
double atanh(double x) noexcept;
/// sin(pi x) and cos(pi x) of a finite x.
struct turned {
  double sine, cosine;
};
turned turn(double x) noexcept;

double lgamma(double x) noexcept;
double digamma(double x) noexcept;
double trigamma(double x) noexcept;

/// exp(-|x|) times the modified Bessel function of that order, 0 or 1.
double bessel_scaled(int order, double x) noexcept;

}  // namespace potl::numeric::specials

// SPDX-License-Identifier: Apache-2.0
// Inverse trigonometric and hyperbolic functions, the gamma function's relatives and Bessel
// functions: what the likelihoods of distributions need, with the same bits on every processor.
//
// Claims: a result is a list of IEEE double operations on its operands, element by element, rounded
// once to float where that is asked for. float64 results are within the bounds of
// docs/reference/elementwise.md. Assumptions and rules for NaN and spans as in
// numeric/elementwise.hpp.
// Cost: one element at a time, 10 to 100 nanoseconds. Cannot: run on a GPU.
// Sources: Abramowitz and Stegun, "Handbook of Mathematical Functions" (1964), by equation.
#pragma once

#include <span>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

enum class special {
  acos,
  asin,
  atan,
  acosh,
  asinh,
  atanh,
  sinc,      ///< sin(pi x) / (pi x), 1 at 0
  lgamma,    ///< log |gamma(x)|; infinite at 0, -1, -2, ...
  digamma,   ///< its derivative; at +0 minus infinity, at -0 infinity, at -1, -2, ... NaN
  trigamma,  ///< the second one; infinite at 0, -1, -2, ...
  entr,      ///< -x log(x); 0 at 0, minus infinity below
  ndtri,     ///< the x with Phi(x) = p
  i0,        ///< the modified Bessel functions of order 0 and 1
  i0e,       ///< the same times exp(-|x|)
  i1,
  i1e,
};
enum class special_pair {
  atan2,    ///< the angle of (y, x): the ordinate comes first
  xlog1py,  ///< x log1p(y); 0 where x is 0 and y is not NaN
};

/// The enumerator's name.
const char* to_string(special function) noexcept;
const char* to_string(special_pair function) noexcept;

double evaluate(special function, double x) noexcept;
double evaluate(special_pair function, double x, double y) noexcept;

/// y[i] = function(x[i]).
void apply(special function, std::span<const float> x, std::span<float> y, const executor& workers);
void apply(special function, std::span<const double> x, std::span<double> y,
           const executor& workers);
/// A span of one element stands for that element at every position.
void apply(special_pair function, std::span<const float> x, std::span<const float> y,
           std::span<float> out, const executor& workers);
void apply(special_pair function, std::span<const double> x, std::span<const double> y,
           std::span<double> out, const executor& workers);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// The functions of numeric/elementwise.hpp on one double, for the bodies of this folder.
#pragma once

#include <limits>

#include "../elementwise/trigonometry.hpp"

namespace potl::numeric::specials {
namespace {

using one_double = elementwise::single<double>;

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
inline constexpr double pi = 0x1.921fb54442d18p+1;
inline constexpr double pi_low = 0x1.1a62633145c07p-53;

inline double fused(double a, double b, double c) { return POTL_FMA(a, b, c); }
inline double root(double x) { return POTL_SQRT(x); }
inline double exp(double x) { return elementwise::exp(one_double(x)).v; }
inline double log(double x) { return elementwise::log(one_double(x)).v; }
inline double log1p(double x) { return elementwise::log1p(one_double(x)).v; }
inline double magnitude(double x) { return elementwise::magnitude(one_double(x)).v; }
inline bool is_negative(double x) { return elementwise::sign_bit(one_double(x)); }
/// The first, which is not negative, with the sign of the second.
inline double with_sign(double x, double sign) {
  return elementwise::with_sign(one_double(x), one_double(sign)).v;
}
template <std::size_t Count>
double polynomial(const double (&coefficients)[Count], double x) {
  return elementwise::polynomial(coefficients, one_double(x)).v;
}

}  // namespace
}  // namespace potl::numeric::specials

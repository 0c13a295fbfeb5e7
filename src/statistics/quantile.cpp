// SPDX-License-Identifier: Apache-2.0
// Logarithm, normal quantile and inverse error function from operations that IEEE 754 defines to
// the last bit. The order of operations is part of the definition: changing it changes bits.
#include <potl/statistics/detail/quantile.hpp>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "quantile_centre.hpp"

#if defined(__FAST_MATH__)
#error "reproducible functions need IEEE arithmetic: build without -ffast-math"
#endif
static_assert(FLT_EVAL_METHOD == 0, "reproducible functions need plain double arithmetic");
static_assert(std::numeric_limits<double>::is_iec559);

namespace potl {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// 1.6 < r + 1.6 <= 5.
constexpr double middle_numerator[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                       5.76949722146069140550e0,  3.64784832476320460504e0,
                                       1.27045825245236838258e0,  2.41780725177450611770e-1,
                                       2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double middle_denominator[] = {1.0,
                                         2.05319162663775882187e0,
                                         1.67638483018380384940e0,
                                         6.89767334985100004550e-1,
                                         1.48103976427480074590e-1,
                                         1.51986665636164571966e-2,
                                         5.47593808499534494600e-4,
                                         1.05075007164441684324e-9};
// r > 5.
constexpr double far_numerator[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                    1.78482653991729133580e0,  2.96560571828504891230e-1,
                                    2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                    2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double far_denominator[] = {1.0,
                                      5.99832206555887937690e-1,
                                      1.36929880922735805310e-1,
                                      1.48753612908506148525e-2,
                                      7.86869131145613259100e-4,
                                      1.84631831751005468180e-5,
                                      1.42151175831644588870e-7,
                                      2.04426310338993978564e-15};

/// The quantile at 0.5 + q; `tail` is the smaller of the probability and its complement. Both are
/// given because either may be exact where the other cannot be.
double quantile(double q, double tail) noexcept {
  if (std::fabs(q) <= quantiles::centre_end) return quantiles::centre(q);
  const double r = std::sqrt(-exact_log(tail));
  using quantiles::polynomial;
  const double magnitude =
      r <= 5.0 ? polynomial(middle_numerator, r - 1.6) / polynomial(middle_denominator, r - 1.6)
               : polynomial(far_numerator, r - 5.0) / polynomial(far_denominator, r - 5.0);
  return q < 0.0 ? -magnitude : magnitude;
}

}  // namespace

double exact_log(double x) noexcept {
  if (!(x >= 0.0)) return not_a_number;
  if (x == 0.0) return -infinity;
  if (x == infinity) return infinity;
  int exponent = 0;
  if (x < std::numeric_limits<double>::min()) {  // subnormal
    x *= 0x1p54;
    exponent = -54;
  }
  // x = m 2^e with m in [0.707, 1.414].
  std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  exponent += static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u;
  double m = std::bit_cast<double>(bits);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent += 1;
  }
  // log(1 + f) = 2 artanh(s) = 2 s + s R with s = f / (2 + f); 2 s = f - s f is not rounded again.
  constexpr double series[] = {2.0 / 3.0,  2.0 / 5.0,  2.0 / 7.0,  2.0 / 9.0,  2.0 / 11.0,
                               2.0 / 13.0, 2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0};
  // log(2) in two parts: the first has 32 bits, so that its product with an exponent is exact.
  constexpr double log2_high = 0x1.62e42feep-1;
  constexpr double log2_low = 0x1.a39ef35793c76p-33;
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double rest = z * quantiles::polynomial(series, z);
  const double half_square = 0.5 * f * f;
  const double e = exponent;
  return e * log2_high - ((half_square - (s * (half_square + rest) + e * log2_low)) - f);
}

double normal_quantile(double p) noexcept {
  if (!(p >= 0.0 && p <= 1.0)) return not_a_number;
  if (p == 0.0) return -infinity;
  if (p == 1.0) return infinity;
  const double q = p - 0.5;
  return quantile(q, q < 0.0 ? p : 1.0 - p);
}

double erfinv(double x) noexcept {
  if (!(x >= -1.0 && x <= 1.0)) return not_a_number;
  if (x == -1.0) return -infinity;
  if (x == 1.0) return infinity;
  constexpr double half_root = 0.70710678118654752440;  // the quantile of a variance of 1/2
  return quantile(0.5 * x, 0.5 - 0.5 * std::fabs(x)) * half_root;
}

}  // namespace potl

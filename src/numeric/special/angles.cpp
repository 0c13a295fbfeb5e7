// SPDX-License-Identifier: Apache-2.0
// Inverse trigonometric functions from one arctangent of a quotient; inverse hyperbolic ones from
// log1p (Abramowitz and Stegun 4.6.20 to 4.6.22, written without cancellation).
#include "functions.hpp"
#include "scalar.hpp"

namespace potl::numeric::specials {
namespace {

/// atan(n / d) for 0 <= n <= d, d > 0: atan(c) + atan((n - c d) / (d + c n)), c the nearest eighth
/// (Abramowitz and Stegun 4.4.34 and 4.4.42).
double first_octant(double n, double d) {
  constexpr double angles[] = {0.0,
                               0x1.fd5ba9aac2f6ep-4,
                               0x1.f5b75f92c80ddp-3,
                               0x1.6f61941e4def1p-2,
                               0x1.dac670561bb4fp-2,
                               0x1.1e00babdefeb4p-1,
                               0x1.4978fa3269ee1p-1,
                               0x1.700a7c5784634p-1,
                               0x1.921fb54442d18p-1};
  constexpr double series[] = {-1.0 / 3,  1.0 / 5,  -1.0 / 7, 1.0 / 9,
                               -1.0 / 11, 1.0 / 13, -1.0 / 15};
  // Far from both ends of the exponent's range, so that d + c n does not overflow, and n - c d
  // loses nothing. What becomes 0 is too small for the angle.
  if (d > 0x1p1000) {
    n *= 0x1p-100;
    d *= 0x1p-100;
  } else if (d < 0x1p-900) {
    n *= 0x1p100;
    d *= 0x1p100;
  }
  const auto eighth = static_cast<unsigned>(8 * (n / d) + 0.5);
  const double c = eighth * 0.125;
  const double u = fused(-c, d, n) / fused(c, n, d);
  const double square = u * u;
  return angles[eighth] + fused(u * square, polynomial(series, square), u);
}

}  // namespace

double atan2(double y, double x) noexcept {
  if (x != x || y != y) return not_a_number;
  constexpr double half = pi / 2, half_low = pi_low / 2;
  double n = magnitude(y), d = magnitude(x);
  if (n == infinity || d == infinity) {
    n = n == infinity ? 1.0 : 0.0;
    d = d == infinity ? 1.0 : 0.0;
  }
  double angle = 0.0;
  if (n > d) {
    angle = half - (first_octant(d, n) - half_low);
  } else if (n > 0.0) {
    angle = first_octant(n, d);
  }
  if (is_negative(x)) angle = pi - (angle - pi_low);
  return with_sign(angle, y);
}

double acosh(double x) noexcept {
  if (!(x >= 1.0)) return not_a_number;
  constexpr double ln2 = 0x1.62e42fefa39efp-1;
  if (x > 0x1p28) return log(x) + ln2;
  const double t = x - 1.0;
  return log1p(t + root(fused(t, t, 2 * t)));
}
double asinh(double x) noexcept {
  constexpr double ln2 = 0x1.62e42fefa39efp-1;
  const double a = magnitude(x);
  if (a > 0x1p28) return with_sign(log(a) + ln2, x);
  return with_sign(log1p(a + a * a / (1.0 + root(fused(a, a, 1.0)))), x);
}
double atanh(double x) noexcept {
  const double a = magnitude(x);
  if (!(a <= 1.0)) return not_a_number;
  return with_sign(0.5 * log1p(2 * a / (1.0 - a)), x);
}

turned turn(double x) noexcept {
  // All from 2^53 on are even.
  const double a = magnitude(x);
  const auto whole = a < 0x1p53 ? static_cast<long long>(a) : 0;
  double rest = a < 0x1p53 ? a - static_cast<double>(whole) : 0.0;
  // By quarters of a turn, like the functions of radians: |rest| <= 1/4 remains.
  auto quarters = static_cast<unsigned>(whole % 2) * 2;
  while (rest > 0.25) {
    rest -= 0.5;
    ++quarters;
  }
  const double r = pi * rest;
  const double low = fused(pi, rest, -r) + pi_low * rest;
  const double s = elementwise::sin_core(one_double(r), one_double(low)).v;
  const double c = elementwise::cos_core(one_double(r), one_double(low)).v;
  const double sine = quarters % 2 == 0 ? s : c;
  const double cosine = quarters % 2 == 0 ? c : -s;
  const bool flip = quarters % 4 >= 2;
  const double signed_sine = flip ? -sine : sine;
  return {is_negative(x) ? -signed_sine : signed_sine, flip ? -cosine : cosine};
}

}  // namespace potl::numeric::specials

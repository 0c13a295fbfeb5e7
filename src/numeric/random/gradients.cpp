// SPDX-License-Identifier: Apache-2.0
// How samples move with their parameters: minus the derivative of the distribution function by the
// parameter, over the density. The power series of a gamma function is derived term by term; else
// the continued fraction of the nearer tail is derived along. Nothing cancels in either.
// Series and fractions: Abramowitz and Stegun 6.5.29, 6.5.31 (its even part) and 26.5.8.
#include <potl/numeric/detail/sampling.hpp>

#include "../special/functions.hpp"
#include "../special/scalar.hpp"

namespace potl::numeric {
namespace {

using namespace specials;

constexpr double precise = 0x1p-50;
/// Terms: a fraction takes a small multiple of the root of the largest parameter.
constexpr int most_terms = 1 << 14;

/// A number and its derivative by the parameter.
struct dual {
  double value, slope;
};
dual operator*(dual a, dual b) {
  return {a.value * b.value, a.slope * b.value + a.value * b.slope};
}
dual operator+(dual a, dual b) { return {a.value + b.value, a.slope + b.slope}; }
dual operator/(dual a, dual b) {
  const double quotient = a.value / b.value;
  return {quotient, (a.slope - quotient * b.slope) / b.value};
}

/// first + n(1) / (d(1) + n(2) / (d(2) + ...)), by Lentz's method; term(i) gives n(i) and d(i).
template <class Term>
dual fraction(dual first, Term term) {
  dual all = first, upper = first, lower = {0.0, 0.0};
  for (int i = 1; i <= most_terms; ++i) {
    const auto [numerator, denominator] = term(i);
    lower = dual{1.0, 0.0} / (denominator + numerator * lower);
    upper = denominator + numerator / upper;
    const dual factor = lower * upper;
    all = all * factor;
    if (magnitude(factor.value - 1.0) < precise &&
        magnitude(factor.slope) * all.value <= precise * magnitude(all.slope)) {
      break;
    }
  }
  return all;
}
struct term {
  dual numerator, denominator;
};

}  // namespace

double gamma_gradient(double shape, double x) noexcept {
  if (!(x >= 0.0 && x < infinity && shape > 0.0 && shape < infinity)) return not_a_number;
  if (x == 0.0) return 0.0;
  if (shape > 0x1p14) {
    // The signed root of twice the deviance is normal but for terms of order 1 / shape.
    const double excess = (x - shape) / shape;
    const double ratio = excess == 0.0 ? 1.0 : log1p(excess) / excess;
    return (1.0 + excess) * ratio + 1.0 / (6.0 * shape);
  }
  // The fraction is slow near 0. Up to 1/2 no term of the series is negative.
  if (x <= shape || x <= 0.5) {
    double factor = x / shape, slope = digamma(shape + 1.0) - log(x), sum = factor * slope;
    for (double n = shape + 1.0; factor * slope > precise * sum; n += 1.0) {
      factor *= x / n;
      slope += 1.0 / n;
      sum += factor * slope;
    }
    return sum;
  }
  // x over (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ...)) is the tail over x's density.
  const dual bottom = fraction({x + 1.0 - shape, -1.0}, [=](int i) {
    const double n = i;
    return term{{-n * (n - shape), n}, {x + 1.0 - shape + 2.0 * n, -1.0}};
  });
  const dual tail = dual{x, 0.0} / bottom;
  return tail.value * (log(x) - digamma(shape)) + tail.slope;
}

double dirichlet_gradient(double x, double shape, double total) noexcept {
  if (!(x >= 0.0 && x <= 1.0 && shape > 0.0 && shape <= total && total < infinity)) {
    return not_a_number;
  }
  if (x == 0.0) return 0.0;
  // A gamma sample's share of nearly a constant.
  if (total > 0x1p20) return gamma_gradient(shape, total * x) / total;
  const double a = shape, b = total - shape;
  // The nearer tail; of small means, the fraction of x until that of 1 - x is the faster one.
  const bool is_below = x * total <= shape || x * (total + 2.0) <= shape + 1.0;
  const dual p = is_below ? dual{a, 1.0} : dual{b, 0.0}, q = is_below ? dual{b, 0.0} : dual{a, 1.0};
  const double y = is_below ? x : 1.0 - x;
  // I_y(p, q) = y^p (1 - y)^q / (p B(p, q)) / (1 + d1 / (1 + d2 / (1 + ...))).
  const auto number = [](double n) { return dual{n, 0.0}; };
  const dual bottom = fraction(number(1.0), [=](int i) {
    const dual m = number(i / 2), before = p + number(i - 1), at = p + number(i);
    // The quotients apart: p / p, of the first, is then 1 however small p is.
    const dual odd = number(-1.0) * ((p + m) / before) * ((p + q + m) / at);
    const dual even = m * (q + number(-1.0) * m) / (before * at);
    return term{number(y) * (i % 2 == 1 ? odd : even), number(1.0)};
  });
  const double part = -bottom.slope / bottom.value;
  const double common = digamma(total) + log(x) + part;
  return is_below ? -(x / a) / bottom.value * (common - digamma(a + 1.0))
                  : (x / b) / bottom.value * (common - digamma(a));
}

}  // namespace potl::numeric

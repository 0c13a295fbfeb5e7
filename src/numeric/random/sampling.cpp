// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/sampling.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <potl/statistics/detail/quantile.hpp>

#include "../special/functions.hpp"
#include "../special/scalar.hpp"
#include "uniform.hpp"

namespace potl {
namespace {

using namespace numeric::specials;
using randoms::check;
using randoms::half_open;
using randoms::open;

/// Each try is accepted with more than one half, so that of 2^64 elements not one gets to this end.
constexpr std::uint64_t most_tries = 64;

/// The two values of an element's try; each try has a stream, so that other elements do not move.
std::array<std::uint64_t, 2> draw(random_key key, std::uint64_t index, std::uint64_t attempt) {
  return random_pair({key.key, key.stream + attempt}, index);
}

// ---------------------------------------------------------------------- gamma

/// factor exp(exponent), apart because the second may underflow.
struct gamma_sample {
  double factor, exponent;
};

/// Marsaglia and Tsang: d (1 + z)^3 with d = shape - 1/3 and a normal 3 sqrt(d) z, accepted with
/// the probability exp(3 d (log(1 + z) - z + z^2 / 2 - z^3 / 3)). A shape below 1 takes the sample
/// of shape + 1 times u^(1 / shape).
gamma_sample draw_gamma(double shape, random_key key, std::uint64_t index) {
  if (!(shape >= 0.0)) return {not_a_number, 0.0};
  if (shape == infinity) return {infinity, 0.0};
  const bool is_small = shape < 1.0;
  const double exponent = is_small ? log(open(draw(key, index, 0)[0])) / shape : 0.0;
  const double d = (is_small ? shape + 1.0 : shape) - 1.0 / 3;
  const double unit = 1.0 / (3.0 * root(d));
  for (std::uint64_t attempt = 1; attempt <= most_tries; ++attempt) {
    const auto bits = draw(key, index, attempt);
    const double z = unit * normal_quantile(open(bits[0]));
    // NaN or minus infinity, which accept nothing, where z <= -1.
    const double excess = log1p(z) - z + z * z * (0.5 - z / 3);
    const double length = 1.0 + z;
    if (log(open(bits[1])) < 3.0 * d * excess) return {d * (length * length * length), exponent};
  }
  return {d, exponent};
}

/// NaN stays.
template <class Real>
Real rounded(double value, double most) {
  constexpr double least = std::numeric_limits<Real>::min();
  return static_cast<Real>(std::min(std::max(value, least), most));
}

template <class Real>
void fill_gammas(std::span<Real> out, std::span<const double> shapes, random_key key,
                 std::uint64_t start) {
  check(shapes.size() == out.size(), "gamma needs a shape for each element");
  for (std::size_t i = 0; i < out.size(); ++i) {
    const gamma_sample sample = draw_gamma(shapes[i], key, start + i);
    out[i] = rounded<Real>(sample.factor * exp(sample.exponent), infinity);
  }
}

template <class Real>
void fill_shares(std::span<Real> out, std::span<const double> shapes, std::size_t columns,
                 random_key key, std::uint64_t start) {
  check(shapes.size() == out.size() && columns > 0 && out.size() % columns == 0,
        "Dirichlet needs a shape for each element, and whole rows");
  constexpr double most = 1.0 - std::numeric_limits<Real>::epsilon() / 2;
  std::vector<double> shares(columns);
  for (std::size_t row = 0; row < out.size(); row += columns) {
    double largest = -infinity, sum = 0.0;
    for (std::size_t k = 0; k < columns; ++k) {
      const gamma_sample sample = draw_gamma(shapes[row + k], key, start + row + k);
      shares[k] = log(sample.factor) + sample.exponent;
      largest = std::max(largest, shares[k]);
    }
    for (double& share : shares) sum += share = exp(share - largest);
    for (std::size_t k = 0; k < columns; ++k) out[row + k] = rounded<Real>(shares[k] / sum, most);
  }
}

// ---------------------------------------------------------------------- counts

/// The logarithm of a Poisson distribution's probability of k, a whole number >= 0.
double log_poisson(double k, double rate) {
  if (k < 10.0) return (k == 0.0 ? 0.0 : k * log(rate)) - rate - lgamma(k + 1.0);
  // Stirling's series of k!; k log(k / rate) - k + rate without its cancellation.
  const double z = 1.0 / (k * k), excess = (k - rate) / rate;
  const double rest = (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - z / 1680) * z) * z) / k;
  return -rate * ((1.0 + excess) * log1p(excess) - excess) - 0.5 * log(2 * pi * k) - rest;
}
double log_binomial(double k, double trials, double p) {
  return log_poisson(k, trials * p) + log_poisson(trials - k, trials * (1.0 - p)) -
         log_poisson(trials, trials);
}

/// Hoermann's transformed rejection with squeeze: k = floor((2 a / s + b) u + centre), s = 1/2 -
/// |u| for u uniform in (-1/2, 1/2); `log_scale` makes `log_probability` that of his test.
struct transformation {
  double a, b, centre, squeeze, log_scale, most;
};
template <class Probability>
double draw_transformed(const transformation& of, Probability log_probability, random_key key,
                        std::uint64_t index) {
  for (std::uint64_t attempt = 0; attempt < most_tries; ++attempt) {
    const auto bits = draw(key, index, attempt);
    const double u = open(bits[0]) - 0.5, v = open(bits[1]);
    const double side = 0.5 - magnitude(u);
    const double k = std::floor((2.0 * of.a / side + of.b) * u + of.centre);
    if (side >= 0.07 && v <= of.squeeze) return k;
    if (k < 0.0 || k > of.most) continue;
    if (log(v) + of.log_scale - log(of.a / (side * side) + of.b) <= log_probability(k)) return k;
  }
  return std::floor(of.centre);
}

/// The smallest k whose distribution function is above a uniform number; `next(k)` is the quotient
/// of the probabilities of k and k - 1.
template <class Next>
double invert(double probability, Next next, double most, random_key key, std::uint64_t index) {
  double left = half_open(draw(key, index, 0)[0]) - probability, k = 0.0;
  while (left >= 0.0 && k < most && probability > 0.0) {
    k += 1.0;
    probability *= next(k);
    left -= probability;
  }
  return k;
}

double draw_poisson(double rate, random_key key, std::uint64_t index) {
  if (rate < 10.0) {
    return invert(
        exp(-rate), [rate](double k) { return rate / k; }, infinity, key, index);
  }
  const double b = 0.931 + 2.53 * root(rate);
  const transformation of = {0.02483 * b - 0.059,
                             b,
                             rate + 0.43,
                             0.9277 - 3.6224 / (b - 2.0),
                             log(1.1239 + 1.1328 / (b - 3.4)),
                             infinity};
  return draw_transformed(
      of, [rate](double k) { return log_poisson(k, rate); }, key, index);
}

/// For p <= 1/2.
double draw_binomial(double trials, double p, random_key key, std::uint64_t index) {
  if (trials * p < 10.0) {
    const double odds = p / (1.0 - p);
    return invert(
        exp(trials * log1p(-p)), [=](double k) { return odds * ((trials - k + 1.0) / k); }, trials,
        key, index);
  }
  const double deviation = root(trials * p * (1.0 - p)), b = 1.15 + 2.53 * deviation;
  const double at_mode = log_binomial(std::floor((trials + 1.0) * p), trials, p);
  const transformation of = {0.0248 * b - 0.0873 + 0.01 * p,
                             b,
                             trials * p + 0.5,
                             0.92 - 4.2 / b,
                             log((2.83 + 5.1 / b) * deviation) + at_mode,
                             trials};
  return draw_transformed(
      of, [=](double k) { return log_binomial(k, trials, p); }, key, index);
}

}  // namespace

void fill_gamma(std::span<float> out, std::span<const double> shapes, random_key key,
                std::uint64_t start) {
  fill_gammas(out, shapes, key, start);
}
void fill_gamma(std::span<double> out, std::span<const double> shapes, random_key key,
                std::uint64_t start) {
  fill_gammas(out, shapes, key, start);
}

void fill_dirichlet(std::span<float> out, std::span<const double> shapes, std::size_t columns,
                    random_key key, std::uint64_t start) {
  fill_shares(out, shapes, columns, key, start);
}
void fill_dirichlet(std::span<double> out, std::span<const double> shapes, std::size_t columns,
                    random_key key, std::uint64_t start) {
  fill_shares(out, shapes, columns, key, start);
}

void fill_poisson(std::span<double> out, std::span<const double> rates, random_key key,
                  std::uint64_t start) {
  check(rates.size() == out.size(), "Poisson needs a rate for each element");
  check(std::all_of(rates.begin(), rates.end(), [](double x) { return x >= 0.0 && x < infinity; }),
        "Poisson needs finite rates >= 0");
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = draw_poisson(rates[i], key, start + i);
}

void fill_binomial(std::span<double> out, std::span<const double> trials,
                   std::span<const double> probabilities, random_key key, std::uint64_t start) {
  check(trials.size() == out.size() && probabilities.size() == out.size(),
        "binomial needs trials and a probability for each element");
  for (std::size_t i = 0; i < out.size(); ++i) {
    check(trials[i] >= 0.0 && trials[i] < infinity && std::floor(trials[i]) == trials[i],
          "binomial needs whole numbers of trials >= 0");
    check(probabilities[i] >= 0.0 && probabilities[i] <= 1.0, "a probability is in [0, 1]");
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double p = probabilities[i];
    out[i] = p <= 0.5 ? draw_binomial(trials[i], p, key, start + i)
                      : trials[i] - draw_binomial(trials[i], 1.0 - p, key, start + i);
  }
}

void fill_categories(std::span<std::int64_t> out, std::span<const double> weights, random_key key,
                     std::uint64_t start) {
  std::vector<double> sums(weights.size());
  double sum = 0.0;
  std::size_t last = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    check(weights[k] >= 0.0, "categories need weights >= 0");
    if (weights[k] > 0.0) last = k;
    sums[k] = sum += weights[k];
  }
  check(sum > 0.0 && sum < infinity, "categories need weights with a finite sum above 0");
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double place = half_open(random_bits(key, start + i)) * sum;
    const auto after = std::upper_bound(sums.begin(), sums.end(), place);
    // The last one where a tiny product was rounded up to the sum.
    out[i] =
        static_cast<std::int64_t>(std::min(static_cast<std::size_t>(after - sums.begin()), last));
  }
}

}  // namespace potl

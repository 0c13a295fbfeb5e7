// SPDX-License-Identifier: Apache-2.0
#include <potl/statistics/detail/binomial.hpp>

#include <algorithm>
#include <cmath>

namespace potl::statistics {
namespace {

// ln n! - ln k! - ln (n-k)!: as a product for small k, because differences of large lgammas cancel.
double log_choose(double n, double k) noexcept {
  k = std::min(k, n - k);
  if (k < 1000) {
    double sum = 0;
    for (double i = 1; i <= k; ++i) sum += std::log((n - k + i) / i);
    return sum;
  }
  const auto stirling = [](double x) {
    const double y = 1 / x;
    return y / 12 - y * y * y / 360 + y * y * y * y * y / 1260;
  };
  const double rest = n - k;
  return n * std::log(n / rest) + k * std::log(rest / k) +
         0.5 * std::log(n / (k * rest) / (2 * 3.14159265358979323846)) + stirling(n) - stirling(k) -
         stirling(rest);
}

// Terms from `first` on, away from the mode: each is the one before times a ratio below 1.
double tail_away(double n, double first, double p, bool upwards) noexcept {
  double term = std::exp(log_choose(n, first) + first * std::log(p) + (n - first) * std::log1p(-p));
  double sum = 0;
  const double odds = p / (1 - p);
  for (double k = first; term > 0;) {
    sum += term;
    if (term < sum * 1e-18) break;
    if (upwards) {
      if (k >= n) break;
      term *= (n - k) / (k + 1) * odds;
      ++k;
    } else {
      if (k <= 0) break;
      term *= k / (n - k + 1) / odds;
      --k;
    }
  }
  return std::min(sum, 1.0);
}

}  // namespace

double binomial_upper_tail(std::uint64_t trials, std::uint64_t successes,
                           double probability) noexcept {
  if (successes == 0) return 1;
  if (successes > trials || !(probability > 0)) return 0;
  if (probability >= 1) return 1;
  const double n = static_cast<double>(trials), k = static_cast<double>(successes);
  if (k > n * probability) return tail_away(n, k, probability, true);
  return 1 - tail_away(n, k - 1, probability, false);
}

double binomial_lower_tail(std::uint64_t trials, std::uint64_t successes,
                           double probability) noexcept {
  if (successes >= trials) return 1;
  return binomial_upper_tail(trials, trials - successes, 1 - probability);
}

interval proportion_interval(std::uint64_t trials, std::uint64_t successes,
                             double confidence) noexcept {
  if (trials == 0) return {0, 1};
  successes = std::min(successes, trials);
  const double alpha = (1 - confidence) / 2;
  // The tail grows with p: bisect to the last bit that a double between 0 and 1 resolves.
  const auto solve = [&](auto tail, bool grows) {
    double low = 0, high = 1;
    for (int i = 0; i < 60; ++i) {
      const double middle = 0.5 * (low + high);
      ((tail(middle) < alpha) == grows ? low : high) = middle;
    }
    return 0.5 * (low + high);
  };
  interval out;
  if (successes > 0) {
    out.low = solve([&](double p) { return binomial_upper_tail(trials, successes, p); }, true);
  }
  if (successes < trials) {
    out.high = solve([&](double p) { return binomial_lower_tail(trials, successes, p); }, false);
  }
  return out;
}

}  // namespace potl::statistics

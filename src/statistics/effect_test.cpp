// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <potl/core/error.hpp>
#include <potl/statistics/detail/two_sample.hpp>

namespace potl::statistics {

effect_test::effect_test(std::uint64_t pairs, double share)
    : pairs_(static_cast<double>(pairs)), share_(share) {
  if (pairs == 0 || pairs > std::uint64_t{1} << 24 || !(share > 0 && share < 1)) {
    throw exception({errc::usage, "an effect is tested with 1 to 2^24 pairs and a share", ""});
  }
  // The terms from the mean to where the rest is below 1e-30 in sum.
  const double mean = pairs_ * share, reach = 12 * std::sqrt(mean * (1 - share)) + 80;
  first_ = std::floor(mean);
  const double last = std::min(pairs_, std::ceil(mean + reach));
  std::vector<double> terms{std::exp(std::lgamma(pairs_ + 1) - std::lgamma(first_ + 1) -
                                     std::lgamma(pairs_ - first_ + 1) + first_ * std::log(share) +
                                     (pairs_ - first_) * std::log1p(-share))};
  for (double k = first_; k < last; ++k) {
    terms.push_back(terms.back() * (pairs_ - k) / (k + 1) * share / (1 - share));
  }
  // E (X - k)+ = P(X > k) + P(X > k + 1) + ...
  excess_.assign(terms.size(), 0);
  double tail = 0;
  for (std::size_t k = terms.size() - 1; k > 0; --k) {
    tail += terms[k];
    excess_[k - 1] = excess_[k] + tail;
  }
}

double effect_test::p_value(double observed) const {
  // Sums of terms are right to a relative 1e-9, and are taken for so much larger.
  constexpr double rounding = 1 + 1e-8;
  double best = 1;
  for (std::size_t i = 0; i < excess_.size(); ++i) {
    const double beyond = pairs_ * observed - (first_ + static_cast<double>(i));
    if (beyond <= 0) break;
    best = std::min(best, excess_[i] / beyond * rounding);
  }
  return best;
}

double effect_test::needed(double level) const {
  double low = share_, high = 1;
  if (p_value(high) > level) return 2;
  for (int round = 0; round < 60; ++round) {
    const double middle = low + (high - low) / 2;
    (p_value(middle) <= level ? high : low) = middle;
  }
  return high;
}

}  // namespace potl::statistics

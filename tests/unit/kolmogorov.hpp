// SPDX-License-Identifier: Apache-2.0
// How far a sample lies from its distribution.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace potl::test {

/// Kolmogorov-Smirnov: sqrt(n) times the largest distance to `distribution`. 2.7 is exceeded with
/// a probability of 2 exp(-2 2.7^2) = 9e-7.
template <class Value, class Distribution>
double distance(std::vector<Value> values, Distribution distribution) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = distribution(static_cast<double>(values[i]));
    largest = std::max({largest, expected - static_cast<double>(i) / count,
                        static_cast<double>(i + 1) / count - expected});
  }
  return largest * std::sqrt(count);
}

/// Pearson: whole numbers against the logarithms of their probabilities, those within six
/// deviations of the mean one by one and all others together. Below 1 unless a fair sample exceeds
/// it with a probability of 1e-6 (Wilson and Hilferty's quantile).
template <class Value, class Logarithm>
double excess(const std::vector<Value>& values, double mean, double deviation, Logarithm log_of) {
  const double low = std::max(0.0, std::floor(mean - 6 * deviation));
  const auto span = static_cast<std::size_t>(12 * deviation) + 8;
  std::vector<double> seen(span + 1);
  for (const Value value : values) {
    const double place = static_cast<double>(value) - low;
    ++seen[place >= 0 && place < static_cast<double>(span) ? static_cast<std::size_t>(place)
                                                           : span];
  }
  // Neighbours together until 20 are expected.
  double sum = 0, bins = 0, left = 1, observed = 0, expected = 0;
  const auto count = static_cast<double>(values.size());
  double rest = count;
  for (std::size_t i = 0; i < span; ++i) {
    observed += seen[i];
    expected += count * std::exp(log_of(low + static_cast<double>(i)));
    if (expected < 20) continue;
    sum += (observed - expected) * (observed - expected) / expected;
    left -= expected / count;
    rest -= observed;
    observed = expected = 0;
    ++bins;
  }
  if (left * count >= 1) {
    sum += (rest - left * count) * (rest - left * count) / (left * count);
    ++bins;
  }
  const double freedom = std::max(1.0, bins - 1), unit = 2 / (9 * freedom);
  return sum / (freedom * std::pow(1 - unit + 4.76 * std::sqrt(unit), 3));
}

}  // namespace potl::test

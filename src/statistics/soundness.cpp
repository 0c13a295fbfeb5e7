// SPDX-License-Identifier: Apache-2.0
#include <potl/statistics/detail/soundness.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace potl::statistics {
namespace {

// ln of (units - sampled - i) / (units - i), the chance that the i-th bad unit is missed as well.
double log_term(double units, double sampled, double i) noexcept {
  return std::log1p(-sampled / (units - i));
}

// Sum over i < terms. Beyond a million terms the sum is its midpoint integral, whose error (a
// 24th of the difference of the end slopes) is added back.
double log_miss(double units, double sampled, std::uint64_t terms) noexcept {
  constexpr std::uint64_t exact = 1'000'000;
  double sum = 0;
  const std::uint64_t direct = std::min(terms, exact);
  for (std::uint64_t i = 0; i < direct; ++i) {
    sum += log_term(units, sampled, static_cast<double>(i));
    if (sum < -745) return sum;  // exp is zero
  }
  if (terms <= exact) return sum;
  const double from = static_cast<double>(exact) - 0.5, to = static_cast<double>(terms) - 0.5;
  constexpr int panels = 4096;
  const double width = (to - from) / panels;
  const double node = width * 0.5 / std::sqrt(3.0);
  for (int i = 0; i < panels; ++i) {
    const double middle = from + width * (i + 0.5);
    sum += 0.5 * width *
           (log_term(units, sampled, middle - node) + log_term(units, sampled, middle + node));
  }
  const auto slope = [&](double i) {
    const double left = units - i;
    return -sampled / (left * (left - sampled));
  };
  return sum - (slope(to) - slope(from)) / 24;
}

}  // namespace

double detection_without_replacement(std::uint64_t units, std::uint64_t bad,
                                     std::uint64_t sampled) noexcept {
  bad = std::min(bad, units);
  sampled = std::min(sampled, units);
  if (bad == 0 || sampled == 0) return 0;
  if (bad > units - sampled) return 1;
  if (bad > sampled) std::swap(bad, sampled);  // the formula is symmetric, the loop shorter
  return -std::expm1(log_miss(static_cast<double>(units), static_cast<double>(sampled), bad));
}

std::uint64_t packed_units(std::uint64_t units, double cheat_fraction) noexcept {
  if (units == 0 || !(cheat_fraction > 0)) return 0;
  if (cheat_fraction >= 1) return units;
  // 0.29 * 100 is 28.999...: a hair is added before rounding down.
  const double packed = std::floor(cheat_fraction * static_cast<double>(units) * (1 + 1e-12));
  if (packed >= static_cast<double>(units)) return units;
  return std::max(static_cast<std::uint64_t>(packed), std::uint64_t{1});
}

double strength(std::uint64_t segments, std::uint64_t sampled, double cheat_fraction) noexcept {
  return detection_without_replacement(segments, packed_units(segments, cheat_fraction), sampled);
}

std::uint64_t samples_for(std::uint64_t segments, double probability,
                          double cheat_fraction) noexcept {
  std::uint64_t low = 0, high = segments;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (strength(segments, middle, cheat_fraction) >= probability) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

double check_probability_for(double probability, double bad) noexcept {
  if (!(bad > 0)) return 1;
  return -std::expm1(std::log1p(-probability) / bad);
}

}  // namespace potl::statistics

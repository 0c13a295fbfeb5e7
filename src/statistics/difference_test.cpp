// SPDX-License-Identifier: Apache-2.0
#include <potl/statistics/detail/two_sample.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include <potl/core/error.hpp>
#include <potl/statistics/detail/quantile.hpp>

namespace potl::statistics {
namespace {

constexpr double pi = 3.14159265358979323846;
// Scores are rounded; what is this close counts as equal, and so as extreme.
constexpr double tie = 1e-9;

std::vector<double> log_choose(std::uint64_t n) {
  std::vector<double> out(static_cast<std::size_t>(n) + 1);
  const double total = std::lgamma(static_cast<double>(n) + 1);
  for (std::size_t k = 0; k < out.size(); ++k) {
    const auto hits = static_cast<double>(k);
    out[k] = total - std::lgamma(hits + 1) - std::lgamma(static_cast<double>(n) - hits + 1);
  }
  return out;
}

// C(n, k + 1) / C(n, k).
std::vector<double> choose_ratios(std::uint64_t n) {
  std::vector<double> out(static_cast<std::size_t>(n));
  for (std::size_t k = 0; k < out.size(); ++k) {
    out[k] = static_cast<double>(out.size() - k) / static_cast<double>(k + 1);
  }
  return out;
}

// The terms of a binomial distribution that can count, from `first` on: the others are below 1e-17
// in sum. Each follows from its neighbour, from the largest on: to within some 1e-13.
struct terms {
  std::size_t first = 0;
  std::vector<double> values;

  terms(const std::vector<double>& log_choose, const std::vector<double>& ratios, double p) {
    const std::size_t n = ratios.size();
    const double mean = static_cast<double>(n) * p;
    const double reach = 9 * std::sqrt(mean * (1 - p)) + 40;
    first = static_cast<std::size_t>(std::max(0.0, std::floor(mean - reach)));
    const std::size_t last = std::min(n, static_cast<std::size_t>(std::ceil(mean + reach)));
    const std::size_t mode = std::min(n, static_cast<std::size_t>(mean));
    values.resize(last - first + 1);
    const double odds = p / (1 - p), inverse = (1 - p) / p;
    values[mode - first] = std::exp(log_choose[mode] + static_cast<double>(mode) * std::log(p) +
                                    static_cast<double>(n - mode) * std::log1p(-p));
    for (std::size_t k = mode; k < last; ++k) {
      values[k + 1 - first] = values[k - first] * (ratios[k] * odds);
    }
    for (std::size_t k = mode; k > first; --k) {
      values[k - 1 - first] = values[k - first] * (inverse / ratios[k - 1]);
    }
  }
  std::size_t last() const noexcept { return first + values.size() - 1; }
};

}  // namespace

difference_test::difference_test(std::uint64_t first_trials, std::uint64_t second_trials,
                                 double margin)
    : first_trials_(first_trials), second_trials_(second_trials), margin_(margin) {
  constexpr std::uint64_t most = std::uint64_t{1} << 24;
  if (first_trials == 0 || second_trials == 0 || first_trials > most || second_trials > most) {
    throw exception({errc::usage, "a difference of proportions needs 1 to 2^24 trials each", ""});
  }
  if (!(margin >= 0 && margin < 1)) {
    throw exception({errc::usage, "the margin of a difference is not from 0 to below 1", ""});
  }
  first_choose_ = log_choose(first_trials);
  second_choose_ = log_choose(second_trials);
  first_ratios_ = choose_ratios(first_trials);
  second_ratios_ = choose_ratios(second_trials);
}

double difference_test::score(std::uint64_t first, std::uint64_t second) const noexcept {
  const double n = static_cast<double>(first_trials_), m = static_cast<double>(second_trials_);
  const double p = static_cast<double>(first) / n, q = static_cast<double>(second) / m;
  const double excess = p - q - margin_;
  // The likelihood under p - q = margin is largest at the middle root of a cubic equation.
  const double ratio = m / n;
  const double a = 1 + ratio;
  const double b = -(1 + ratio + p + ratio * q + margin_ * (ratio + 2));
  const double c = margin_ * margin_ + margin_ * (2 * p + ratio + 1) + p + ratio * q;
  const double d = -p * margin_ * (1 + margin_);
  const double third = b / (3 * a);
  const double v = third * third * third - b * c / (6 * a * a) + d / (2 * a);
  const double square = std::max(third * third - c / (3 * a), 0.0);
  const double u = std::copysign(std::sqrt(square), v);
  const double cosine = u == 0 ? 0 : std::clamp(v / (u * u * u), -1.0, 1.0);
  const double w = (pi + std::acos(cosine)) / 3;
  const double first_share = std::clamp(2 * u * std::cos(w) - third, margin_, 1.0);
  const double second_share = std::clamp(first_share - margin_, 0.0, 1 - margin_);
  const double variance =
      first_share * (1 - first_share) / n + second_share * (1 - second_share) / m;
  if (variance > 1e-18) return excess / std::sqrt(variance);
  if (std::fabs(excess) < 1e-12) return 0;
  return std::copysign(std::numeric_limits<double>::infinity(), excess);
}

// For each number of hits in the second sample, the least in the first that scores this much.
std::vector<std::uint64_t> difference_test::region(double least_score) const {
  std::vector<std::uint64_t> out(static_cast<std::size_t>(second_trials_) + 1);
  // The score falls with `second`, so that the least number never does: n + m scores in all.
  std::uint64_t least = 0;
  for (std::uint64_t second = 0; second <= second_trials_; ++second) {
    while (least <= first_trials_ && score(least, second) < least_score) ++least;
    out[second] = least;
  }
  return out;
}

// P(in the region) when the proportions are `second_probability` and that plus the margin.
double difference_test::tail_at(const std::vector<std::uint64_t>& region,
                                double second_probability) const {
  const auto n = static_cast<std::size_t>(first_trials_),
             m = static_cast<std::size_t>(second_trials_);
  const double p = std::min(second_probability + margin_, 1.0);
  // P(first >= k) for the k that count.
  std::optional<terms> tails;
  if (p > 0 && p < 1) {
    tails.emplace(first_choose_, first_ratios_, p);
    std::partial_sum(tails->values.rbegin(), tails->values.rend(), tails->values.rbegin());
  }
  const auto tail = [&](std::uint64_t least) -> double {
    if (least > n) return 0;
    if (!tails) return least == 0 || p >= 1 ? 1 : 0;
    if (least > tails->last()) return 0;
    return tails->values[static_cast<std::size_t>(std::max<std::uint64_t>(least, tails->first)) -
                         tails->first];
  };
  if (second_probability <= 0) return tail(region[0]);
  if (second_probability >= 1) return tail(region[m]);
  const terms other(second_choose_, second_ratios_, second_probability);
  double sum = 0;
  for (std::size_t k = other.first; k <= other.last() && region[k] <= n; ++k) {
    sum += other.values[k - other.first] * tail(region[k]);
  }
  return sum;
}

// The largest probability of the region under the null hypothesis. It grows with the first
// proportion and falls with the second, so that the largest lies where they differ by the margin.
// What is above `enough` ends the search: a lower bound is returned then.
double difference_test::size(const std::vector<std::uint64_t>& region, double points_per_width,
                             double enough) const {
  const double trials = static_cast<double>(first_trials_ + second_trials_);
  const auto points =
      static_cast<std::size_t>(std::clamp(points_per_width * std::sqrt(trials), 128.0, 8192.0));
  // Equal steps of the angle are equal shares of a standard error, at the ends too.
  const auto at = [&](double place) {
    const double sine = std::sin(pi / 2 * place / static_cast<double>(points));
    return tail_at(region, (1 - margin_) * sine * sine);
  };
  std::vector<double> values(points + 1);
  for (std::size_t i = 0; i <= points; ++i) {
    values[i] = at(static_cast<double>(i));
    if (values[i] > enough) return values[i];
  }
  const double top = *std::max_element(values.begin(), values.end());
  double best = top;
  // Of what is left of that little, every point is a peak.
  if (top < 1e-15) return best;
  for (std::size_t i = 1; i < points; ++i) {
    if (values[i] < values[i - 1] || values[i] < values[i + 1] || values[i] < 0.98 * top) continue;
    double low = static_cast<double>(i) - 1, high = static_cast<double>(i) + 1;
    for (int round = 0; round < 24; ++round) {
      const double left = low + (high - low) / 3, right = high - (high - low) / 3;
      const double left_value = at(left), right_value = at(right);
      best = std::max({best, left_value, right_value});
      (left_value < right_value ? low : high) = left_value < right_value ? left : right;
    }
  }
  return std::min(best, 1.0);
}

double difference_test::p_value(std::uint64_t first, std::uint64_t second) const {
  return size(region(score(first, second) - tie), 8);
}

std::uint64_t difference_test::needed(double level, std::uint64_t second) const {
  const double likely = static_cast<double>(second) / static_cast<double>(second_trials_);
  const auto enough = [&](std::uint64_t first) {
    const auto extreme = region(score(first, second) - tie);
    // One proportion often tells already.
    if (tail_at(extreme, std::min(likely, 1 - margin_)) > level) return false;
    return size(extreme, 8, level) <= level;
  };
  // A score is nearly normal. From there in growing steps, then halving.
  const double normal = normal_quantile(1 - std::clamp(level, 1e-12, 1 - 1e-12));
  std::uint64_t low = 0, high = first_trials_ + 1;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (score(middle, second) < normal) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  std::uint64_t at = std::min(low, first_trials_), step = 1;
  bool fewer = false, more = false;
  low = 0;
  high = first_trials_ + 1;
  while (low < high) {
    if (enough(at)) {
      high = at;
      fewer = true;
    } else {
      low = at + 1;
      more = true;
    }
    if (fewer && more) {
      at = low + (high - low) / 2;
    } else if (fewer) {
      at = high - std::min(high - low, step);
    } else {
      at = std::min(first_trials_, low + step - 1);
    }
    step *= 2;
  }
  return low;
}

std::vector<std::uint64_t> difference_test::needed_for_all(double level) const {
  double low = -1, high = 64;  // of the score: too small a one, one that nothing reaches
  while (high - low > 1e-7) {
    const double middle = low + (high - low) / 2;
    (size(region(middle), 2) <= level ? high : low) = middle;
  }
  return region(high);
}

}  // namespace potl::statistics

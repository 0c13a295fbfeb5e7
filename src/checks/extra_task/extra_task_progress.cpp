// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/extra_task.hpp>

#include <algorithm>
#include <cmath>

#include <potl/statistics/detail/quantile.hpp>

#include "checks/extra_task/extra_task_errors.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

using points = std::vector<std::pair<double, double>>;

// Pools neighbours that fall until nothing falls (the nearest monotone curve, least squares).
void make_monotone(points& curve) {
  std::stable_sort(curve.begin(), curve.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::pair<double, std::size_t>> pools;  // sum, points
  const auto mean = [](const auto& pool) { return pool.first / static_cast<double>(pool.second); };
  for (const auto& point : curve) {
    pools.emplace_back(point.second, 1);
    while (pools.size() > 1 && mean(pools[pools.size() - 2]) > mean(pools.back())) {
      const auto last = pools.back();
      pools.pop_back();
      pools.back().first += last.first;
      pools.back().second += last.second;
    }
  }
  auto at = curve.begin();
  for (const auto& pool : pools) {
    for (std::size_t i = 0; i < pool.second; ++i) (at++)->second = mean(pool);
  }
}

double rate_at(const points& curve, double share) {
  const auto above = std::lower_bound(curve.begin(), curve.end(), share,
                                      [](const auto& a, double b) { return a.first < b; });
  if (above == curve.begin()) return above->second;
  if (above == curve.end()) return curve.back().second;
  const auto below = above - 1;
  const double width = above->first - below->first;
  if (!(width > 0)) return above->second;
  return below->second + (above->second - below->second) * (share - below->first) / width;
}

struct ladder_step {
  points curve;
  double samples = 0, hits = 0;
  double worth = 1;  // of a sample, since the curve is uncertain, too

  double log_likelihood(double share) const {
    // A reference run that hit none, or all, does not exclude the opposite.
    const double least = 0.5 / (samples + 1);
    const double rate = std::clamp(rate_at(curve, share), least, 1 - least);
    return worth * (hits * std::log(rate) + (samples - hits) * std::log1p(-rate));
  }
};

result<points> checked(const extra_curve& curve) {
  for (const auto& [share, rate] : curve.points) {
    if (!(share >= 0 && share <= 1e6 && rate >= 0 && rate <= 1)) {
      return wrong("the curve of grade " + curve.grade + " has a point out of range",
                   "points are (share of a converged training, hit rate)");
    }
  }
  if (curve.points.empty()) return wrong("the curve of grade " + curve.grade + " is empty", "");
  points out = curve.points;
  make_monotone(out);
  return out;
}

// Whole percents, five at a time, outwards.
std::string sentence(const extra_progress& found, double end) {
  constexpr const char* of = " % of the training that a converged model needs";
  const double low = std::floor(found.low * 20 + 1e-9) * 5,
               high = std::ceil(found.high * 20 - 1e-9) * 5;
  const bool open_above = found.high >= end * (1 - 1e-9);
  if (open_above && low <= 0) return "nothing about progress can be said";
  if (open_above) return "at least " + text(low) + of;
  if (low <= 0) return "at most " + text(high) + of;
  return "about " + text(low) + " to " + text(high) + of;
}

}  // namespace

result<extra_progress> estimate_extra_progress(std::span<const extra_grade_count> counts,
                                               std::span<const extra_curve> curves,
                                               double confidence) {
  if (!(confidence > 0 && confidence < 1)) return wrong("confidence is not between 0 and 1", "");
  if (counts.empty()) return wrong("there are no grades", "");
  std::vector<ladder_step> ladder;
  double end = 0;
  for (const extra_grade_count& count : counts) {
    const auto found = std::find_if(curves.begin(), curves.end(), [&](const extra_curve& one) {
      return one.grade == count.grade.name();
    });
    if (found == curves.end()) {
      return wrong("there is no reference curve of grade " + count.grade.name(),
                   "calibrate with the same grades");
    }
    auto curve = checked(*found);
    if (!curve) return curve.why();
    if (count.hits > count.samples) return wrong("more hits than samples", "");
    end = std::max(end, curve->back().first);
    const auto samples = static_cast<double>(count.samples),
               measured = static_cast<double>(found->samples);
    ladder.push_back({std::move(*curve), samples, static_cast<double>(count.hits),
                      found->samples == 0 ? 1 : measured / (measured + samples)});
  }
  constexpr std::size_t steps = 2000;
  std::vector<double> likelihood(steps + 1);
  const auto share = [&](std::size_t i) { return end * static_cast<double>(i) / steps; };
  for (std::size_t i = 0; i <= steps; ++i) {
    for (const ladder_step& one : ladder) likelihood[i] += one.log_likelihood(share(i));
  }
  const double best = *std::max_element(likelihood.begin(), likelihood.end());
  // Twice the log ratio is chi-squared with one degree of freedom, a squared normal.
  const double z = normal_quantile(0.5 + confidence / 2);
  const double least = best - z * z / 2;
  // Where the curves are flat many shares are as likely: their middle is named.
  std::size_t first = steps, last = 0, low = steps, high = 0;
  for (std::size_t i = 0; i <= steps; ++i) {
    if (likelihood[i] >= best - 1e-9) first = std::min(first, i), last = i;
    if (likelihood[i] >= least) low = std::min(low, i), high = i;
  }
  extra_progress out;
  out.share = (share(first) + share(last)) / 2;
  out.low = share(low);
  out.high = share(high);
  out.text = sentence(out, end);
  return out;
}

}  // namespace potl::checks

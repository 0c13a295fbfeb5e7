// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "checks/replay/replay_draw.hpp"

namespace potl::checks::detail {
namespace {

// Segments on either side that say what a loss usually is there: a single false one among them
// moves no median, and a falling loss has its middle in the middle.
constexpr std::size_t neighbours = 2;

double median(std::vector<double> values) {
  if (values.empty()) return std::nan("");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<double> losses_of(const run_view& run, const segment& of) {
  std::vector<double> out;
  for (std::uint64_t step = of.start + 1; step <= of.end; ++step) {
    if (const auto* record = run.step(step)) out.push_back(record->loss);
  }
  return out;
}

double skips_of(const run_view& run, const segment& of) {
  double out = 0;
  for (std::uint64_t step = of.start + 1; step <= of.end; ++step) {
    const auto* record = run.step(step);
    if (record != nullptr && has(record->flags, transcript::step_flag::skipped)) ++out;
  }
  return out;
}

bool diverges_in(const run_view& run, const segment& of) {
  for (std::uint64_t step = of.start + 1; step <= of.end; ++step) {
    const auto* record = run.step(step);
    if (record != nullptr && transcript::has_diverged(*record)) return true;
  }
  return false;
}

struct unusual {
  double loss = 0;      // distance from those around it, summed
  double relative = 0;  // to their size
};

// What is not a number is further away than any.
double known(double distance) {
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

std::vector<unusual> unusual_losses(const run_view& run, const std::vector<segment>& all) {
  std::vector<unusual> out(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<double> around;
    const std::size_t end = std::min(all.size(), i + neighbours + 1);
    for (std::size_t s = i - std::min(i, neighbours); s < end; ++s) {
      for (const double loss : losses_of(run, all[s])) {
        if (std::isfinite(loss)) around.push_back(loss);
      }
    }
    const double usual = median(std::move(around));
    double sum = 0;
    for (const double loss : losses_of(run, all[i])) sum += std::fabs(loss - usual);
    out[i] = {known(sum), sum == 0 ? 0 : known(sum / std::fabs(usual))};
  }
  return out;
}

}  // namespace

std::vector<segment> steering_segments(const run_view& run, const std::vector<segment>& all,
                                       const std::function<bool(const segment&)>& is_asked) {
  std::vector<segment> out;
  const auto add_largest = [&](const std::function<double(std::size_t)>& of) {
    std::size_t best = all.size();
    double most = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool known = std::find(out.begin(), out.end(), all[i]) != out.end();
      if (known || is_asked(all[i]) || !(of(i) > most)) continue;
      best = i;
      most = of(i);
    }
    if (best < all.size()) out.push_back(all[best]);
  };
  // Whether the agreed steps make the first number that is not finite.
  std::size_t first = 0;
  while (first < all.size() && !diverges_in(run, all[first])) ++first;
  if (first < all.size() && !is_asked(all[first])) out.push_back(all[first]);
  add_largest([&](std::size_t i) { return skips_of(run, all[i]); });
  if (!run.agreed.rates.empty()) return out;
  const std::vector<unusual> losses = unusual_losses(run, all);
  add_largest([&](std::size_t i) { return losses[i].loss; });
  add_largest([&](std::size_t i) { return losses[i].relative; });
  return out;
}

}  // namespace potl::checks::detail

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <potl/checks/extra_task_options.hpp>
#include <potl/statistics/detail/binomial.hpp>

#include "checks/extra_task/extra_task_errors.hpp"
#include "checks/text.hpp"

namespace potl::checks {
double extra_epsilon(const extra_task_options& options) noexcept {
  return static_cast<double>(millionths(options.epsilon)) / 1e6;
}

double extra_margin(const extra_task_options& options, std::uint64_t classes) noexcept {
  const double epsilon = extra_epsilon(options);
  if (classes == 0) return epsilon;
  // Who knows a share answers the rest like controls: one in `classes` is right, labels are random.
  const double known = static_cast<double>(millionths(options.least_known) * (classes - 1)) /
                       static_cast<double>(million * classes);
  return std::max(epsilon, known);
}

bool extra_effect_is_tested(const extra_task_options& options) noexcept {
  return options.least_effect > 0.5;
}

result<extra_threshold> extra_threshold_of(std::uint64_t samples, std::uint64_t classes,
                                           double alpha, double epsilon,
                                           std::uint64_t submissions) {
  if (samples == 0 || samples > std::uint64_t{1} << 32) {
    return wrong(text(samples) + " samples have no threshold", "give 1 to 2^32 samples");
  }
  if (classes < 2 || classes > std::uint64_t{1} << 32) {
    return wrong("labels of " + text(classes) + " classes cannot be guessed wrong",
                 "give at least two classes");
  }
  if (!(alpha >= 1e-6 && alpha <= 0.5)) {
    return wrong("alpha is not from 1e-06 to 0.5", "0.01 is usual");
  }
  if (!(epsilon >= 0 && epsilon <= 0.5)) {
    return wrong("epsilon is not from 0 to 0.5", "0.03 is usual");
  }
  if (submissions == 0) return wrong("no submission is planned", "plan one or more");
  const std::uint64_t share = millionths(epsilon);
  extra_threshold out;
  // One division of integers below 2^53 (for fewer than 9e9 classes): the nearest double.
  out.chance = static_cast<double>(share * classes + (million - share)) /
               static_cast<double>(million * classes);
  out.level = static_cast<double>(millionths(alpha)) / static_cast<double>(million * submissions);
  // P(X >= hits) <= level for certain: tails are computed to a relative 1e-10.
  const auto enough = [&](std::uint64_t hits) {
    return statistics::binomial_upper_tail(samples, hits, out.chance) <= out.level * (1 - 1e-9);
  };
  std::uint64_t low = 0, high = samples + 1;  // high is enough: its tail is 0
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (enough(middle) ? high : low) = middle;
  }
  out.needed = high;
  return out;
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/extra_task.hpp>

#include <algorithm>
#include <cmath>

#include <potl/statistics/detail/binomial.hpp>
#include <potl/statistics/detail/two_sample.hpp>

#include "checks/extra_task/extra_task_errors.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

constexpr double heavy_share = 0.03;     // beyond it the extra task costs accuracy
constexpr double measured_share = 0.16;  // the largest of any experiment

using needed_hits = std::vector<std::uint64_t>;  // by the number of hits among the controls

needed_hits needed_at(const extra_plan& plan, double margin) {
  return statistics::difference_test(plan.samples, plan.controls, margin)
      .needed_for_all(plan.threshold.level);
}

// P(enough hits) of a model that knows `learned` samples and guesses the others.
class power_of {
 public:
  power_of(const extra_plan& plan, const needed_hits& needed)
      : plan_(plan), chance_(1 / static_cast<double>(plan.classes)) {
    for (std::uint64_t hits = 0; hits < needed.size(); ++hits) {
      // Differences of tails are exact enough for a weight, and what is not in them is not needed.
      const double weight = statistics::binomial_upper_tail(plan.controls, hits, chance_) -
                            statistics::binomial_upper_tail(plan.controls, hits + 1, chance_);
      if (weight < 1e-9) continue;
      if (!cases_.empty() && cases_.back().first == needed[hits]) {
        cases_.back().second += weight;
      } else {
        cases_.emplace_back(needed[hits], weight);
      }
    }
  }

  double operator()(std::uint64_t learned) const {
    double sum = 0;
    for (const auto& [needed, weight] : cases_) {
      const std::uint64_t guessed = needed > learned ? needed - learned : 0;
      sum += weight * statistics::binomial_upper_tail(plan_.samples - learned, guessed, chance_);
    }
    return sum;
  }

 private:
  const extra_plan& plan_;
  double chance_;
  std::vector<std::pair<std::uint64_t, double>> cases_;
};

std::vector<extra_power> powers_of(const extra_plan& plan, const needed_hits& needed) {
  const power_of power(plan, needed);
  std::vector<extra_power> out;
  for (const double wanted : {0.5, 0.9, 0.99}) {
    std::uint64_t low = 0, high = plan.samples;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (power(middle) >= wanted) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    out.push_back({wanted, low, static_cast<double>(low) / static_cast<double>(plan.samples)});
  }
  return out;
}

void add_powers(extra_plan& plan, const extra_task_options& options) {
  const double epsilon = extra_epsilon(options), margin = extra_margin(options, plan.classes);
  needed_hits needed = needed_at(plan, epsilon);
  for (std::uint64_t& one : needed) one = std::max(one, plan.threshold.needed);
  plan.powers = powers_of(plan, needed);
  if (margin > epsilon) {
    const needed_hits convincing = needed_at(plan, margin);
    for (std::size_t i = 0; i < needed.size(); ++i) needed[i] = std::max(needed[i], convincing[i]);
  }
  plan.acceptance = powers_of(plan, needed);
  plan.needed_for_acceptance = needed[static_cast<std::size_t>(plan.controls / plan.classes)];
}

// What is mixed in, copies of noisy samples included.
double share_of(const extra_plan& plan) {
  return static_cast<double>(plan.uploads) / static_cast<double>(plan.training_samples);
}

// Whether many are called untrained who know the share that "inconclusive" begins below.
bool hides_what_was_asked_for(const extra_plan& plan, const extra_task_options& options) {
  return plan.classes != 0 && options.failing == "reject" &&
         options.least_known > options.epsilon && plan.powers.front().share > options.least_known;
}

void add_warnings(extra_plan& plan, const extra_task_options& options, std::uint64_t asked) {
  auto& out = plan.warnings;
  if (asked < extra_minimum) {
    out.push_back("eta " + percent(options.eta) + " of " + text(plan.training_samples) +
                  " samples would be " + text(asked) + " extra samples; there are " +
                  text(plan.samples) + ", which is " + percent(plan.eta));
  }
  const double share = share_of(plan);
  if (share > heavy_share) {
    const std::string copies =
        plan.uploads > plan.samples ? " (" + text(plan.uploads) + " with copies)" : "";
    const std::string unknown = share > measured_share
                                    ? "; no experiment had more than " + percent(measured_share) +
                                          " extra samples: what they cost here was not measured"
                                    : "";
    out.push_back("extra samples" + copies + " are " + percent(share) +
                  " of the training data, more than 3 %: they may cost accuracy" + unknown);
  }
  if (plan.classes != 0 && plan.samples / plan.classes < 3 && options.layout != "paper" &&
      options.grades.empty()) {
    out.push_back("there are too few samples of each class for a ladder: one grade is used");
  }
  if (plan.needed_effect > 1) {
    out.push_back("no effect is enough for acceptance at this alpha: take more extra samples");
  }
  if (plan.threshold.needed > plan.samples) {
    out.push_back("no number of hits is enough at this alpha: every model fails");
  } else if (plan.classes != 0 && plan.acceptance.back().share > 0.9) {
    out.push_back("a model must learn " + percent(plan.acceptance.back().share) +
                  " of the extra samples to be accepted with 99 %: take more of them");
  } else if (hides_what_was_asked_for(plan, options)) {
    out.push_back("guesses among " + text(plan.classes) +
                  " classes hide much: a model that knows " + percent(plan.powers.front().share) +
                  " of the extra samples is rejected every second time, although no more than " +
                  percent(options.least_known) +
                  " (least_known) is asked for: choose a larger eta, or failing inconclusive");
  }
}

}  // namespace

extra_accuracy_cost extra_cost(double share) noexcept {
  const bool measured = share <= measured_share;
  // Beyond it nothing says that they cost no more: in proportion, up to all of the accuracy.
  const double bound = measured ? 1 : share / measured_share;
  return {std::min({100 * share, bound, 100.0}), std::min({190 * share, 1.9 * bound, 100.0}),
          measured};
}

result<extra_plan> plan_extra_task(std::uint64_t training_samples, std::uint64_t classes,
                                   const extra_task_options& options) {
  const status valid = options.validate();
  if (!valid) return valid.why();
  constexpr std::uint64_t most = std::uint64_t{1} << 40;
  if (training_samples == 0 || training_samples > most) {
    return wrong("a training set has 1 to 2^40 samples", "");
  }
  if (classes == 1) return wrong("one class cannot be guessed wrong", "give two classes or none");
  const std::uint64_t per_block = std::max<std::uint64_t>(classes, 1);
  // Decimals in integers: 0.008 of 50,000 is 400 and not a little less.
  const std::uint64_t asked = (millionths(options.eta) * training_samples + 500'000) / 1'000'000;
  extra_plan plan;
  plan.training_samples = training_samples;
  plan.classes = classes;
  plan.samples = (std::max(asked, extra_minimum) + per_block - 1) / per_block * per_block;
  if (plan.samples > std::uint64_t{1} << 24 || plan.samples * options.control > 1 << 24) {
    return wrong(text(plan.samples) + " extra samples and their controls are too many",
                 "choose a smaller eta");
  }
  plan.eta = static_cast<double>(plan.samples) / static_cast<double>(training_samples);
  plan.controls = plan.samples * options.control;
  auto grades = extra_grades(options, plan.samples / per_block);
  if (!grades) return grades.why();
  plan.grades = std::move(*grades);
  plan.uploads = plan.samples;
  for (std::uint64_t i = 0; i < plan.samples; ++i) {
    if (plan.grades[extra_grade_of(i, plan.samples, classes, plan.grades.size())].noisy) {
      plan.uploads += 2;
    }
  }
  if (classes == 0) {
    plan.threshold.level = static_cast<double>(millionths(options.alpha)) /
                           static_cast<double>(1'000'000 * options.submissions);
    if (extra_effect_is_tested(options)) {
      plan.needed_effect =
          statistics::effect_test(plan.samples, options.least_effect).needed(plan.threshold.level);
    }
  } else {
    const auto threshold = extra_threshold_of(plan.samples, classes, options.alpha, options.epsilon,
                                              options.submissions);
    if (!threshold) return threshold.why();
    plan.threshold = threshold.value();
    plan.accuracy = extra_cost(share_of(plan));
    add_powers(plan, options);
  }
  add_warnings(plan, options, asked);
  return plan;
}

result<extra_plan> plan_extra_task(std::uint64_t training_samples, std::uint64_t classes,
                                   const extra_task_options& options,
                                   const extra_content& content) {
  auto plan = plan_extra_task(training_samples, classes, options);
  if (!plan) return plan;
  const auto drawn = extra_drawn_grades(content, plan->samples, classes, options);
  if (!drawn) return drawn.why();
  for (std::size_t i = 0; i < drawn->size(); ++i) {
    const extra_grade &asked = plan->grades[i], &found = drawn.value()[i];
    if (asked == found) continue;
    plan->warnings.push_back("grade " + asked.name() + " is drawn as " + found.name() +
                             ": the data are too short or too narrow to tell the samples apart by "
                             "less");
  }
  return plan;
}

}  // namespace potl::checks

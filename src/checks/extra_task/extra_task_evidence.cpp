// SPDX-License-Identifier: Apache-2.0
#include "checks/extra_task/extra_task_evidence.hpp"

#include <algorithm>
#include <vector>

#include <potl/core/rules.hpp>
#include <potl/statistics/detail/binomial.hpp>
#include <potl/statistics/detail/two_sample.hpp>

#include "checks/judging.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

constexpr const char* hits_rule = "extra_task.hits";
constexpr const char* control_rule = "extra_task.control";
constexpr const char* known_rule = "extra_task.known";

struct measured {
  double statistic = 0, threshold = 0;
};

outcome failed(const extra_task_options& options) {
  return options.failing == "reject" ? outcome::reject : outcome::inconclusive;
}

void add(extra_result& out, const char* rule, outcome found, std::string reason, measured what) {
  if (!rule_enabled(rule)) return;
  finding one = make_finding("extra_task", rule, found, std::move(reason));
  one.statistic = what.statistic;
  one.threshold = what.threshold;
  one.details.emplace_back("samples", out.samples);
  one.details.emplace_back("controls", out.controls);
  one.details.emplace_back("level", out.level);
  one.details.emplace_back("submission", out.submission);
  out.findings.push_back(std::move(one));
}

std::string not_learned(const std::string& numbers) {
  return "the model has not learned the extra samples: " + numbers;
}

// What an inconclusive result between the two thresholds means, and what to do about it.
std::string few_learned(const std::string& numbers) {
  return "the model has seen the extra samples, but too few of them are learned to call it "
         "converged: " +
         numbers +
         "; it was stopped early or trained on a part of the data, or the epochs that were agreed "
         "are too few. Train longer, agree on more epochs, or see by a reference run of your own "
         "what an honest training reaches";
}

// The share that is known when the others are hit like controls.
double known_share(const extra_result& out) {
  const double rate = static_cast<double>(out.hits) / static_cast<double>(out.samples);
  const double chance = static_cast<double>(out.control_hits) / static_cast<double>(out.controls);
  return chance < 1 ? std::clamp((rate - chance) / (1 - chance), 0.0, 1.0) : 0.0;
}

// The share of pairs of one grade in which the extra sample has the smaller error. Grades differ in
// difficulty, which would hide what a model knows.
double effect_within_grades(const extra_answers& answers, const extra_result& out) {
  double sum = 0;
  for (std::size_t grade = 0; grade < out.grades.size(); ++grade) {
    std::vector<double> extra, control;
    const auto own = [&](std::size_t index) {
      return extra_grade_of(index, out.samples, 0, out.grades.size()) == grade;
    };
    for (std::size_t i = 0; i < answers.extra.size(); ++i) {
      if (own(i)) extra.push_back(answers.extra[i]);
    }
    for (std::size_t i = 0; i < answers.control.size(); ++i) {
      if (own(i)) control.push_back(answers.control[i]);
    }
    const auto size = static_cast<double>(extra.size());
    const double larger = statistics::mann_whitney_less(extra, control).u;
    sum += size - larger / static_cast<double>(control.size());
  }
  return sum / static_cast<double>(out.samples);
}

}  // namespace

void test_extra_labels(const extra_task_options& options, const extra_threshold& threshold,
                       extra_result& out) {
  out.needed = threshold.needed;
  out.known = known_share(out);
  out.p_value = statistics::binomial_upper_tail(out.samples, out.hits, threshold.chance);
  const std::string hits = text(out.hits) + " of " + text(out.samples) + " extra samples hit, " +
                           text(out.needed) + " needed, p = " + text(out.p_value);
  const bool enough = out.hits >= out.needed;
  add(out, hits_rule, enough ? outcome::pass : failed(options), enough ? hits : not_learned(hits),
      {static_cast<double>(out.hits), static_cast<double>(out.needed)});

  const statistics::difference_test some(out.samples, out.controls, extra_epsilon(options));
  out.control_p_value = some.p_value(out.hits, out.control_hits);
  out.needed_against_control = some.needed(out.level, out.control_hits);
  const std::string controls =
      text(out.control_hits) + " of " + text(out.controls) + " control samples hit, for which " +
      text(out.needed_against_control) +
      " hits among the extra samples are needed, p = " + text(out.control_p_value);
  const bool better = out.control_p_value <= out.level;
  add(out, control_rule, better ? outcome::pass : failed(options),
      better ? controls : not_learned(controls), {out.control_p_value, out.level});

  const statistics::difference_test many(out.samples, out.controls,
                                         extra_margin(options, out.classes));
  out.acceptance_p_value = many.p_value(out.hits, out.control_hits);
  out.needed_for_acceptance =
      std::max({out.needed, out.needed_against_control, many.needed(out.level, out.control_hits)});
  // Says something only of a model that is not rejected.
  if (enough && better && !(out.acceptance_p_value <= out.level)) {
    add(out, known_rule, outcome::inconclusive,
        few_learned("it knows about " + percent(out.known) + ", with " + text(out.hits) + " of " +
                    text(out.samples) + " hits, and more than " + percent(options.least_known) +
                    " is asked for, which " + text(out.needed_for_acceptance) +
                    " hits show, p = " + text(out.acceptance_p_value)),
        {static_cast<double>(out.hits), static_cast<double>(out.needed_for_acceptance)});
  }
}

void test_extra_errors(const extra_task_options& options, const extra_answers& answers,
                       extra_result& out) {
  const auto ranks = statistics::mann_whitney_less(answers.extra, answers.control);
  out.p_value = out.control_p_value = ranks.p_value;
  const double pairs = static_cast<double>(out.samples) * static_cast<double>(out.controls);
  const std::string found = "errors on the extra samples are smaller than on control samples in " +
                            percent(1 - ranks.u / pairs) + " of pairs, p = " + text(ranks.p_value);
  const bool smaller = ranks.p_value <= out.level;
  add(out, control_rule, smaller ? outcome::pass : failed(options),
      smaller ? found : not_learned(found), {ranks.p_value, out.level});

  out.effect = effect_within_grades(answers, out);
  if (!extra_effect_is_tested(options)) {
    out.acceptance_p_value = ranks.p_value;
    return;
  }
  const statistics::effect_test test(out.samples, options.least_effect);
  out.acceptance_p_value = test.p_value(out.effect);
  out.needed_effect = test.needed(out.level);
  if (smaller && out.acceptance_p_value > out.level) {
    add(out, known_rule, outcome::inconclusive,
        few_learned("errors are smaller than on controls of the same grade in " +
                    percent(out.effect) + " of pairs, and " + percent(out.needed_effect) +
                    " show that they are in more than " + percent(options.least_effect) +
                    ", p = " + text(out.acceptance_p_value)),
        {out.effect, out.needed_effect});
  }
}

}  // namespace potl::checks

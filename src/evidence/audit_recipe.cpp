// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include <potl/encoding/json.hpp>
#include <potl/transcript/detail/batch_order.hpp>

#include "core/counted.hpp"
#include "evidence/audit.hpp"

namespace potl::transcript {
namespace {

std::vector<const step_record*> all_steps(const audit_input& in) {
  std::vector<const step_record*> out;
  out.reserve(in.run.steps.size() + in.run.superseded.size());
  for (const step_record& one : in.run.steps) out.push_back(&one);
  for (const step_record& one : in.run.superseded) out.push_back(&one);
  // In the order of steps every epoch's permutation is computed once.
  std::stable_sort(out.begin(), out.end(),
                   [](const step_record* a, const step_record* b) { return a->step < b->step; });
  return out;
}

bool of_the_job(const audit_input& in, const step_record& one) {
  return one.step >= 1 && one.step <= in.agreed.steps;
}

/// One finding for all steps that differ in the same way, which may be every step of a run.
struct differing_steps {
  std::uint64_t first = 0, count = 0;

  void add(std::uint64_t step) {
    if (count++ == 0) first = step;
  }
  void reject(audit_log& log, std::string_view rule, const std::string& what) const {
    if (count == 0) return;
    const std::string more = count > 1 ? ", as did " + counted(count - 1, "later step") : "";
    log.reject(rule, "step " + std::to_string(first) + " used other " + what + more, first);
  }
};

// The order is the task's: the record has the digest of each step's samples, the job one over all.
void audit_own_order(const audit_input& in, audit_log& log) {
  constexpr std::string_view rule = "agreed.batch_order";
  const std::vector<step_record>& steps = in.run.steps;
  order_digest found;
  for (const step_record& one : steps) found.add(one.sample_ids);
  // Until the last step is there, nothing can be compared with one digest over all of them.
  const bool goes_on = !in.commitment && steps.size() < in.agreed.steps;
  if (goes_on) {
    log.inconclusive(rule,
                     "the job has one digest over the samples of all steps, to be compared when "
                     "the run has ended");
  } else if (steps.size() != in.agreed.steps || found.finish() != in.agreed.order->steps) {
    log.reject(rule, "the steps did not use the samples that were agreed");
  }
  for (const step_record& one : in.run.superseded) {
    if (goes_on && one.step > steps.size()) continue;  // not yet trained again
    if (one.step >= 1 && one.step <= steps.size() &&
        steps[one.step - 1].sample_ids == one.sample_ids)
      continue;
    log.reject(rule,
               "superseded step " + std::to_string(one.step) + " used other samples than agreed",
               one.step);
  }
  log.pass(rule, counted(steps.size(), "step") + " used the samples that were agreed");
}

void audit_order(const audit_input& in, audit_log& log) {
  constexpr std::string_view rule = "agreed.batch_order";
  if (!in_force(rule)) return;
  if (in.agreed.order) return audit_own_order(in, log);
  if (!in.job_is_own && in.agreed.data_count > max_foreign_samples) {
    return log.inconclusive(rule, "the order of " + counted(in.agreed.data_count, "sample") +
                                      " is recomputed for a job of one's own only");
  }
  batch_order order(in.agreed);
  std::size_t looked_at = 0;
  differing_steps others;
  for (const step_record* one : all_steps(in)) {
    if (!of_the_job(in, *one)) continue;
    ++looked_at;
    if (digest_of_ids(order.of(one->step)) != one->sample_ids) others.add(one->step);
  }
  others.reject(log, rule, "samples than the job's seed selects");
  log.pass(rule, counted(looked_at, "step") + " used the samples that the job's seed selects");
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  });
}

void audit_rates(const audit_input& in, audit_log& log) {
  constexpr std::string_view rule = "agreed.recipe";
  if (in.agreed.rates.empty()) {
    log.note(
        "the job lists no learning rates (the task has its own step, or they follow a metric): "
        "replays compare them");
    return;
  }
  std::size_t looked_at = 0;
  differing_steps others;
  for (const step_record* one : all_steps(in)) {
    if (!of_the_job(in, *one)) continue;
    ++looked_at;
    const std::vector<double>* agreed = in.agreed.rates_at(one->step);
    if (agreed == nullptr || !same_bits(*agreed, one->rates)) others.add(one->step);
  }
  others.reject(log, rule, "learning rates than agreed");
  log.pass(rule, counted(looked_at, "step") + " used the agreed learning rates");
}

/// The first learning rate that is another than the one with which the job's optimizers begin, as
/// the end of a sentence: where the job lists no rates they are a part of the initial state. Empty
/// where none is, or nobody can tell.
std::string other_rate(const audit_input& in) {
  if (!in.agreed.rates.empty()) return "";
  const json_value document = in.agreed.document();
  const json_value* optimizers = document.root().at("task").at("optimizers").get();
  if (optimizers == nullptr || optimizers->if_array() == nullptr) return "";
  if (in.run.steps.empty() || in.run.steps.front().step != 1) return "";
  const std::vector<double>& used = in.run.steps.front().rates;
  std::size_t k = 0;
  for (const json_value& optimizer : *optimizers->if_array()) {
    const json_value* groups = optimizer.find("groups");
    if (groups == nullptr || groups->if_array() == nullptr) return "";
    for (const json_value& group : *groups->if_array()) {
      const result<std::string> agreed = group.root().string("lr");
      if (!agreed || k == used.size()) return "";
      double rate = 0;
      const char* const end = agreed->data() + agreed->size();
      if (std::from_chars(agreed->data(), end, rate).ptr != end) return "";
      if (used[k] != rate) {
        return ", with the learning rate " + to_string(fact(used[k])) +
               " in step 1, where the job's optimizers begin with " + to_string(fact(rate));
      }
      ++k;
    }
  }
  return "";
}

void audit_initial(const audit_input& in, audit_log& log) {
  constexpr std::string_view rule = "agreed.initial_state";
  if (in.run.initial && in.run.initial->state != in.agreed.initial_state) {
    log.reject(rule, "the run started from another state than agreed" + other_rate(in), 0);
  }
  if (!in.run.initial) log.reject(rule, "the run does not say from which state it started", 0);
  if (!in.agreed.initial_state_from_seed) {
    log.note(
        "the job brings its initial state in a file: that this follows from the seed is the word "
        "of whoever made the job");
  }
  log.pass(rule, "the run started from the agreed state");
}

}  // namespace

void audit_recipe(const audit_input& in, audit_log& log) {
  audit_initial(in, log);
  audit_order(in, log);
  audit_rates(in, log);
}

void audit_finite(const audit_input& in, audit_log& log) {
  constexpr std::string_view rule = "transcript.finite";
  bool told = false;  // of many such steps the first tells
  for (const step_record* one : all_steps(in)) {
    if (has(one->flags, step_flag::skipped)) continue;
    if (has_diverged(*one) && !told) {
      told = true;
      const std::string step = "step " + std::to_string(one->step);
      log.inconclusive(rule, (std::isfinite(one->loss)
                                  ? step + " had gradients that are not finite and was not skipped"
                                  : "the loss of " + step + " is not finite") +
                                 ", and no run with such a step is accepted (in the next job, "
                                 "lower the rates or clip gradients, and in float16 add a scaler; "
                                 "if a batch has no loss, let the task's own step leave it out, "
                                 "and return a finite number, such as 0)");
    }
    for (const double rate : one->rates) {
      if (std::isfinite(rate)) continue;
      log.reject(rule, "a learning rate of step " + std::to_string(one->step) + " is not finite",
                 one->step);
      break;
    }
  }
  log.pass(rule, "all losses and learning rates are finite");
}

}  // namespace potl::transcript

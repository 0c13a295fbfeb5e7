// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <potl/checks/pev.hpp>
#include <potl/core/rules.hpp>

#include "checks/judging.hpp"
#include "checks/text.hpp"
#include "core/counted.hpp"

namespace potl::checks {
namespace {

template <class Measurement>
const Measurement* find(std::span<const Measurement> list, std::uint64_t step) {
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const auto& one) { return one.request.step == step; });
  return at == list.end() ? nullptr : &*at;
}

// Times the tolerance that a loss must be off to reject, as in replay.
constexpr double margin = 8;

void at_step(finding& one, std::uint64_t step) { one.first_step = one.last_step = step; }

double largest_noise(std::span<const loss_measurement> losses) {
  double out = 0;
  for (const loss_measurement& one : losses) {
    for (const double again : one.noise) {
      // A loss that is not finite itself is a finding whatever the noise.
      if (std::isfinite(one.loss)) out = noisier(out, std::fabs(again - one.loss));
    }
  }
  return out;
}

// A half-precision step whose loss overflows on both sides, and was skipped for that. Replay judges
// whether the scaler skips it.
bool overflowed(const transcript::step_record& record, double recomputed) {
  return has(record.flags, transcript::step_flag::skipped) && !std::isfinite(record.loss) &&
         !std::isfinite(recomputed);
}

// The end of the epoch that `step` belongs to, and the mean of its logged losses.
struct epoch_mean {
  std::uint64_t first = 0, last = 0, count = 0;
  double mean = 0;
};

epoch_mean mean_of_epoch(const run_view& run, std::uint64_t step) {
  epoch_mean out;
  const auto* record = run.step(step);
  if (record == nullptr) return out;
  double sum = 0;
  for (const transcript::step_record& one : run.steps) {
    if (one.epoch != record->epoch) continue;
    if (out.count++ == 0) out.first = one.step;
    out.last = one.step;
    sum += one.loss;
  }
  out.mean = sum / static_cast<double>(out.count);
  return out;
}

class pev_judge {
 public:
  pev_judge(const run_view& run, const pev_options& options) : run_(run), options_(options) {}

  std::vector<finding> losses(const pev_plan& plan, std::span<const loss_measurement> measured) {
    const bool exact = run_.agreed.is_exact();
    const double noise = exact ? 0 : largest_noise(measured);
    const loss_limits limits = exact ? loss_limits{}
                                     : loss_limits{options_.loss_floor, options_.loss_cap,
                                                   options_.safety, margin, options_.loss_cap};
    for (const loss_request& request : plan.losses) {
      const std::string name = "the loss of step " + text(request.step);
      const loss_measurement* one = ready(request.step, name, measured);
      const auto* record = run_.step(request.step);
      if (one == nullptr || record == nullptr) continue;
      if (overflowed(*record, one->loss)) continue;
      const bool turned =
          !exact && std::any_of(one->noise.begin(), one->noise.end(),
                                [&](double again) { return turns(one->loss, again); });
      const auto compared = compare_loss(record->loss, one->loss, noise, limits, turned);
      worst_ = std::max(worst_, compared.tolerance > 0 ? compared.difference / compared.tolerance
                                                       : compared.difference);
      ++judged_;
      if (compared.result == outcome::pass) continue;
      const bool comparable = compared.finite && compared.noise_finite;
      if (comparable && !rule_enabled("loss.recomputed")) continue;
      finding bad =
          make_finding("pev", comparable ? "loss.recomputed" : "transcript.finite", compared.result,
                       text_of(compared, request.step, record->loss, one->loss));
      bad.statistic = compared.difference;
      bad.threshold = compared.tolerance;
      at_step(bad, request.step);
      out_.push_back(std::move(bad));
    }
    return summary("recomputed losses agree at " + text(judged_) + " of " +
                       counted(plan.losses.size(), "step") + "; the largest difference is " +
                       text(worst_) + " of its tolerance",
                   plan.losses.size());
  }

  std::vector<finding> subsets(const pev_plan& plan,
                               std::span<const subset_loss_measurement> measured) {
    const double percents = 100 * options_.fraction;
    for (const subset_loss_request& request : plan.subsets) {
      const std::string name = "the mean loss after step " + text(request.step);
      const subset_loss_measurement* one = ready(request.step, name, measured);
      if (one == nullptr) continue;
      const epoch_mean epoch = mean_of_epoch(run_, request.step);
      const double difference = std::fabs(epoch.mean - one->mean);
      const double tolerance = 100 * one->standard_deviation / percents;
      worst_ = std::max(worst_, tolerance > 0 ? difference / tolerance : difference);
      ++judged_;
      if (!rule_enabled("loss.recomputed") || difference <= tolerance) continue;
      // Honest means lie further apart where weights move fast, where the drawn losses are equal or
      // one, and where a half-precision loss overflows.
      finding bad = make_finding(
          "pev", "loss.recomputed", outcome::inconclusive,
          "mean logged loss of steps " + text(epoch.first) + "-" + text(epoch.last) + " is " +
              precise(epoch.mean) + ", recomputed " + precise(one->mean) +
              ", published tolerance " + text(tolerance) +
              "; honest trainings differ as much where the loss falls fast: PEV's default mode "
              "tells");
      bad.first_step = epoch.first;
      bad.last_step = epoch.last;
      bad.statistic = difference;
      bad.threshold = tolerance;
      out_.push_back(std::move(bad));
    }
    return summary("mean losses of " + text(judged_) +
                       " epochs lie within 100 sigma / N; the largest difference is " +
                       text(worst_) + " of that",
                   plan.subsets.size());
  }

 private:
  template <class Measurement>
  const Measurement* ready(std::uint64_t step, const std::string& name,
                           std::span<const Measurement> measured) {
    const Measurement* one = find(measured, step);
    if (one == nullptr) {
      out_.push_back(finding_of_missing("pev", name));
      return nullptr;
    }
    if (one->status == measured::ok) {
      if (auto bad = finding_of_not_finite(one->not_finite, "pev", name)) {
        at_step(*bad, step);
        out_.push_back(std::move(*bad));
      }
      return one;
    }
    if (auto bad = finding_of(one->status, "pev", name, one->message)) {
      at_step(*bad, step);
      out_.push_back(std::move(*bad));
    }
    return nullptr;
  }

  std::vector<finding> summary(const std::string& reason, std::size_t planned) {
    const bool clean = out_.empty();
    if (clean && judged_ > 0) {
      finding good = make_finding("pev", "loss.recomputed", outcome::pass, reason);
      good.statistic = worst_;
      good.threshold = 1;
      good.details.emplace_back("mode", options_.mode);
      out_.push_back(std::move(good));
    } else if (clean) {
      out_.push_back(make_finding("pev", "", outcome::inconclusive,
                                  planned == 0
                                      ? "there is no checkpoint at which a loss could be recomputed"
                                      : "the loss overflows at each step that was recomputed"));
    }
    return std::move(out_);
  }

  const run_view& run_;
  const pev_options& options_;
  std::vector<finding> out_;
  std::uint64_t judged_ = 0;
  double worst_ = 0;
};

}  // namespace

result<std::vector<finding>> judge_pev(const run_view& run, const pev_options& options,
                                       const digest& nonce,
                                       std::span<const loss_measurement> losses,
                                       std::span<const subset_loss_measurement> subsets) {
  const auto plan = plan_pev(run, options, nonce);
  if (!plan) return plan.why();
  pev_judge judge(run, options);
  return options.mode == "apex" ? judge.subsets(plan.value(), subsets)
                                : judge.losses(plan.value(), losses);
}

}  // namespace potl::checks

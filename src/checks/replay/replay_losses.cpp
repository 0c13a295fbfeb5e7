// SPDX-License-Identifier: Apache-2.0
#include "checks/replay/replay_losses.hpp"

#include <algorithm>
#include <cmath>

#include <potl/core/rules.hpp>

#include "checks/judging.hpp"
#include "checks/replay/replay_draw.hpp"
#include "checks/text.hpp"

namespace potl::checks::detail {
namespace {

using transcript::step_flag;
using transcript::step_record;

bool same_rates(const std::vector<double>& a, const std::vector<double>& b, double share) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [share](double x, double y) {
    return std::fabs(x - y) <= share * std::max(std::fabs(x), std::fabs(y));
  });
}

double noise_of(const segment_measurement& measurement,
                const std::vector<std::vector<double>>& repeats) {
  double out = 0;
  for (const std::vector<double>& repeat : repeats) {
    for (std::size_t i = 0; i < repeat.size() && i < measurement.losses.size(); ++i) {
      // A loss that is not finite itself is a finding whatever the noise.
      if (!std::isfinite(measurement.losses[i])) continue;
      out = noisier(out, std::fabs(repeat[i] - measurement.losses[i]));
    }
  }
  return out;
}

const step_record* record_of(const run_view& run, const segment_request& request,
                             std::uint64_t step) {
  return request.superseded ? run.superseded_step(request.branch, step) : run.step(step);
}

std::string other_flag(std::uint64_t step, bool in_replay) {
  return "step " + text(step) +
         (in_replay
              ? " has gradients that are not finite in the replay alone"
              : " was recorded with gradients that are not finite, and in the replay all are");
}

std::string other_skip(std::uint64_t step, bool in_replay) {
  return "step " + text(step) +
         (in_replay ? " is skipped by the scaler in the replay alone"
                    : " was recorded as skipped and is not in the replay");
}

}  // namespace

bool other_finiteness(const step_record& record, const segment_measurement& measurement,
                      std::size_t i) {
  return measurement.finite.size() == measurement.losses.size() &&
         measurement.finite[i] == has(record.flags, step_flag::non_finite);
}

// A gradient next to the largest number overflows on one machine and not on another.
std::optional<finding> turned_skip(const run_view& run, const replay_context& context,
                                   const segment_measurement& measurement) {
  if (context.exact || measurement.digest_equal || is_published(*context.options) ||
      !rule_enabled("replay.optimizer")) {
    return std::nullopt;
  }
  const bool noise_known = has_own_noise(context, measurement) && measurement.other_arithmetic;
  for (std::size_t i = 0; i < measurement.skipped.size(); ++i) {
    const std::uint64_t step = measurement.request.start + 1 + i;
    const step_record* record = record_of(run, measurement.request, step);
    const bool skipped = measurement.skipped[i];
    if (record == nullptr || skipped == has(record->flags, step_flag::skipped)) continue;
    // A repeat that skips an earlier step is on another course here.
    const auto& repeats = measurement.repeat_skipped;
    const auto end = measurement.skipped.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    const bool turned = std::any_of(repeats.begin(), repeats.end(), [&](const auto& repeat) {
      return repeat.size() > i && !std::equal(measurement.skipped.begin(), end, repeat.begin());
    });
    if (noise_known && !turned) return std::nullopt;
    const char* const why = turned ? ", and honest repeats skip other steps too: gradients are at "
                                     "the edge of overflow; use an exact arithmetic"
                                   : ", but the noise was not measured here";
    finding out = make_finding("replay", "replay.optimizer", outcome::inconclusive,
                               other_skip(step, skipped) + why);
    out.first_step = out.last_step = step;
    out.statistic = 1;  // by which its noise is asked for
    out.threshold = 0;
    return out;
  }
  return std::nullopt;
}

std::vector<finding> judge_losses(const run_view& run, const replay_context& context,
                                  const segment_measurement& measurement) {
  const replay_options& options = *context.options;
  const bool exact = context.exact;
  const segment_request& request = measurement.request;
  const std::uint64_t length = request.end - request.start;
  std::vector<finding> out;
  if (measurement.losses.size() != length) {
    out.push_back(make_finding("replay", "", outcome::inconclusive,
                               "the replay returned " + text(measurement.losses.size()) +
                                   " losses for " + text(length) + " steps"));
    return out;
  }
  const auto turned = turned_skip(run, context, measurement);
  const std::uint64_t comparable_steps = turned ? *turned->first_step - 1 - request.start : length;
  // A fork that nobody kept is judged by the rule that makes it visible.
  const std::string_view rule = request.superseded ? "transcript.resume" : "loss.recomputed";
  const loss_limits limits = exact ? loss_limits{}
                                   : loss_limits{options.loss_floor, options.loss_cap,
                                                 options.safety, options.margin, options.loss_cap};
  // An accusation needs to know what honest repeats of this very segment do.
  const bool may_reject =
      exact || (has_own_noise(context, measurement) && measurement.other_arithmetic);
  const double noise = exact ? 0 : noise_of(measurement, measurement.noise_losses);
  const double rough = exact ? 0 : noise_of(measurement, measurement.rough_losses);
  std::optional<finding> worst;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < comparable_steps; ++i) {
    const std::uint64_t step = request.start + 1 + i;
    const step_record* record = record_of(run, request, step);
    if (record == nullptr) continue;  // transcript.sequence speaks of gaps
    const bool skipped = i < measurement.skipped.size() && measurement.skipped[i];
    if (skipped != has(record->flags, step_flag::skipped) && rule_enabled("replay.optimizer")) {
      finding one =
          make_finding("replay", "replay.optimizer", outcome::reject, other_skip(step, skipped));
      one.first_step = one.last_step = step;
      out.push_back(std::move(one));
    }
    // Where a loss or an update says it, too, the finding is theirs.
    const bool flag_alone = !skipped && !has(record->flags, step_flag::skipped) &&
                            std::isfinite(record->loss) && std::isfinite(measurement.losses[i]);
    if (exact && flag_alone && other_finiteness(*record, measurement, i) &&
        rule_enabled("transcript.finite")) {
      finding one = make_finding("replay", "transcript.finite", outcome::reject,
                                 other_flag(step, !measurement.finite[i]));
      one.first_step = one.last_step = step;
      out.push_back(std::move(one));
    }
    // Rates that steps compute are rounded like what they are computed from. What they did is in
    // the states, which may accuse.
    const bool computed = !exact && run.agreed.rates.empty();
    if (i < measurement.rates.size() && rule_enabled("agreed.recipe") &&
        !same_rates(measurement.rates[i], record->rates, computed ? context.cap : 1e-12)) {
      finding one = make_finding(
          "replay", "agreed.recipe", computed ? outcome::inconclusive : outcome::reject,
          "step " + text(step) + " was recorded with another learning rate" +
              (computed ? ", and the job lists none: use an exact arithmetic" : ""));
      one.first_step = one.last_step = step;
      out.push_back(std::move(one));
    }
    // What an overflowing half-precision step looks like on both sides, and was skipped for.
    if (skipped && has(record->flags, step_flag::skipped) && !std::isfinite(record->loss) &&
        !std::isfinite(measurement.losses[i])) {
      continue;
    }
    const double usual = exact ? 0 : context.loss_share * (1 + std::fabs(measurement.losses[i]));
    const bool loss_turned =
        !exact && std::any_of(measurement.noise_losses.begin(), measurement.noise_losses.end(),
                              [&](const std::vector<double>& repeat) {
                                return i < repeat.size() && turns(measurement.losses[i], repeat[i]);
                              });
    auto compared =
        compare_loss(record->loss, measurement.losses[i],
                     noise > usual || std::isnan(noise) ? noise : usual, limits, loss_turned);
    if (compared.result == outcome::reject && compared.finite && !may_reject) {
      compared.result = outcome::inconclusive;
    }
    // What rough sums turn excuses up to the cap; an accusation is beyond it.
    if (compared.noise_finite &&
        compare_loss(record->loss, measurement.losses[i], rough, limits).result == outcome::pass) {
      continue;
    }
    const bool comparable = compared.finite && compared.noise_finite;
    if (compared.result == outcome::pass || (comparable && !rule_enabled(rule))) continue;
    ++wrong;
    if (worst && worst->result == outcome::reject) continue;
    worst = make_finding("replay", comparable ? rule : "transcript.finite", compared.result,
                         text_of(compared, step, record->loss, measurement.losses[i]));
    worst->first_step = worst->last_step = step;
    worst->statistic = compared.difference;
    worst->threshold = compared.tolerance;
  }
  if (turned) out.push_back(*turned);
  if (worst) {
    worst->details.emplace_back("steps_beyond", wrong);
    out.push_back(std::move(*worst));
  }
  if (measurement.rates.size() != length && run.agreed.rates.empty() &&
      rule_enabled("agreed.recipe")) {
    out.push_back(make_finding("replay", "", outcome::inconclusive,
                               "the replay did not return the learning rates it used"));
  }
  return out;
}

}  // namespace potl::checks::detail

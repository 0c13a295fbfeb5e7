// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include <potl/checks/telemetry.hpp>
#include <potl/core/rules.hpp>
#include <potl/statistics/detail/binomial.hpp>

#include "checks/judging.hpp"
#include "checks/text.hpp"

namespace potl::checks {
namespace {

constexpr double confidence = 0.999999;

class telemetry_judge {
 public:
  telemetry_judge(const run_view& run, const telemetry_options& options, const telemetry_log& log)
      : run_(run), options_(options), log_(log) {
    for (const telemetry_sample& one : log.samples) {
      if (one.utilisation) utilisation_.push_back(*one.utilisation);
    }
  }

  std::vector<finding> robust() {
    const std::string wrong = wrong_sequence(run_, log_.steps);
    say(wrong.empty(), wrong.empty() ? "step marks name every recorded step in order" : wrong);
    busy();
    memory();
    energy();
    step_time();
    return std::move(out_);
  }

  std::vector<finding> apex() {
    std::uint64_t marks = 0;
    for (const telemetry_steps& one : log_.steps) marks += one.last - one.first + 1;
    const std::uint64_t expected = run_.agreed.epochs * iterations();
    say(marks == expected,
        text(marks) + " step marks, epochs times iterations are " + text(expected));
    if (utilisation_.empty()) {
      unknown("no utilisation was sampled");
    } else {
      const double share = share_above_mean(utilisation_);
      say(share >= options_.alpha,
          percent(share) +
              " of the utilisation samples lie above their "
              "mean, published are at least " +
              percent(options_.alpha),
          share, options_.alpha);
    }
    memory();
    losses();
    return std::move(out_);
  }

 private:
  void say(bool fits, const std::string& reason, std::optional<double> statistic = {},
           std::optional<double> threshold = {}) {
    out_.push_back(make_finding("telemetry", "telemetry.consistent",
                                fits ? outcome::pass : outcome::reject, reason));
    out_.back().statistic = statistic;
    out_.back().threshold = threshold;
  }
  // The load and the memory of a process depend on what else runs on its machine, on how many
  // processors that has and on what the process did before: they can fit, and never look forged.
  void say_of_device(bool fits, const std::string& reason, double statistic, double threshold) {
    const bool process = !log_.headers.empty() &&
                         std::all_of(log_.headers.begin(), log_.headers.end(),
                                     [](const auto& header) { return header.source == "process"; });
    if (!fits && process) {
      unknown(reason + "; no sign of anything, since a process was measured and no device");
    } else {
      say(fits, reason, statistic, threshold);
    }
  }
  void unknown(const std::string& reason) {
    out_.push_back(
        make_finding("telemetry", "telemetry.consistent", outcome::inconclusive, reason));
  }

  std::uint64_t iterations() const {
    return run_.agreed.batch_size == 0 ? 0 : run_.agreed.steps_per_epoch();
  }

  void busy() {
    const bool slice = std::any_of(log_.headers.begin(), log_.headers.end(),
                                   [](const auto& header) { return header.mig; });
    if (utilisation_.empty()) {
      unknown(slice ? "the utilisation of a slice of a GPU (MIG) cannot be read"
                    : "no utilisation was sampled");
      return;
    }
    const double share = busy_share_of_time(log_.samples, options_.busy_above);
    const auto count = static_cast<std::uint64_t>(utilisation_.size());
    const auto busy = static_cast<std::uint64_t>(std::llround(share * static_cast<double>(count)));
    const statistics::interval range = statistics::proportion_interval(count, busy, confidence);
    // Few samples have a wide interval: only what lies below it altogether does not fit.
    say_of_device(range.high >= options_.busy_share,
                  "busy (" + percent(options_.busy_above) + " or more) for " + percent(share) +
                      " of the time, between " + percent(range.low) + " and " +
                      percent(range.high) + " by " + text(count) +
                      " samples; expected are at least " + percent(options_.busy_share),
                  share, options_.busy_share);
  }

  void memory() {
    const auto shape = shape_of_memory(log_.samples);
    if (!shape) {
      unknown("fewer than four samples of memory");
      return;
    }
    const bool early = shape->rise_at <= options_.rise_share;
    const bool settled = shape->spread <= options_.memory_spread;
    say_of_device(early && settled,
                  "memory rises within the first " + percent(shape->rise_at) +
                      " of the samples and varies by " + percent(shape->spread) +
                      " in the second half",
                  shape->spread, options_.memory_spread);
  }

  void energy() {
    double integral = 0;
    const telemetry_sample* first = nullptr;
    const telemetry_sample* last = nullptr;
    for (const telemetry_sample& one : log_.samples) {
      if (!one.power || !one.energy) continue;
      if (last != nullptr && one.t > last->t && *one.energy >= *last->energy) {
        integral += 0.5 * (*one.power + *last->power) * (one.t - last->t);
      }
      if (first == nullptr) first = &one;
      last = &one;
    }
    if (first == nullptr || last == first) return;  // no counter: nothing to compare
    const double counted = *last->energy - *first->energy;
    const double off = std::fabs(counted - integral);
    const double allowed = options_.energy_tolerance * std::max(counted, integral);
    say(off <= allowed,
        "the energy counter rose by " + text(counted) + " J, the integrated power is " +
            text(integral) + " J",
        off, allowed);
  }

  void step_time() {
    if (!options_.flops_per_step || !options_.peak_flops || run_.steps.empty()) return;
    std::vector<double> seconds;
    for (const transcript::step_record& one : run_.steps) {
      seconds.push_back(static_cast<double>(one.duration_ns) * 1e-9);
    }
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    const double least = *options_.flops_per_step / *options_.peak_flops;
    say(*middle >= least,
        "the median step took " + text(*middle) + " s, the work needs at least " + text(least) +
            " s at peak speed",
        *middle, least);
  }

  void losses() {
    if (run_.steps.empty()) return;
    const auto mean_of = [&](std::uint64_t epoch) {
      double sum = 0, count = 0;
      for (const transcript::step_record& one : run_.steps) {
        if (one.epoch != epoch) continue;
        sum += one.loss;
        ++count;
      }
      return sum / count;
    };
    const double before = mean_of(run_.steps.front().epoch),
                 after = mean_of(run_.steps.back().epoch);
    say(after < before || run_.steps.front().epoch == run_.steps.back().epoch,
        "the mean loss goes from " + text(before) + " in the first epoch to " + text(after) +
            " in the last");
  }

  const run_view& run_;
  const telemetry_options& options_;
  const telemetry_log& log_;
  std::vector<double> utilisation_;
  std::vector<finding> out_;
};

}  // namespace

std::span<const field<telemetry_options>> telemetry_options::fields() {
  using row = field<telemetry_options>;
  using options = telemetry_options;
  // clang-format off
  static const std::array table{
      row{"mode", &options::mode, -unbounded, unbounded, "default apex",
          "default: robust rules; apex: the published ones"},
      row{"alpha", &options::alpha, 0, 1, "",
          "apex: share of the utilisation samples that must lie above their mean"},
      row{"busy_above", &options::busy_above, 0, 1, "",
          "utilisation from which the device counts as busy"},
      row{"busy_share", &options::busy_share, 0, 1, "",
          "share of the time for which the device must be busy"},
      row{"memory_spread", &options::memory_spread, 0, 1, "",
          "largest variation of memory in the second half, relative to its largest value"},
      row{"rise_share", &options::rise_share, 0, 1, "",
          "share of the samples within which memory must have risen"},
      row{"energy_tolerance", &options::energy_tolerance, 0, 1, "",
          "largest relative difference of energy counter and integrated power"},
      row{"flops_per_step", &options::flops_per_step, 0, unbounded, "",
          "floating-point operations of one step; with peak_flops, steps cannot be faster than their ratio"},
      row{"peak_flops", &options::peak_flops, 1, unbounded, "",
          "most operations per second that the prover's hardware can do"},
  };
  // clang-format on
  return table;
}

result<telemetry_options> telemetry_options::parse(const json_value& from) {
  return parse_options("telemetry", fields(), from);
}

std::vector<finding> judge_telemetry(const run_view& run, const telemetry_options& options) {
  if (!rule_enabled("telemetry.consistent")) return {};
  const auto say = [](const std::string& reason) {
    return std::vector{
        make_finding("telemetry", "telemetry.consistent", outcome::inconclusive, reason)};
  };
  if (run.telemetry.empty())
    return say("there is no telemetry; none is read before the run is closed");
  auto log = parse_telemetry(run.telemetry);
  if (!log) return say(log.why().message);
  if (log->samples.empty() && log->steps.empty()) return say("telemetry.log holds no samples");
  close_gaps(log->samples);
  telemetry_judge judge(run, options, log.value());
  return options.mode == "apex" ? judge.apex() : judge.robust();
}

}  // namespace potl::checks

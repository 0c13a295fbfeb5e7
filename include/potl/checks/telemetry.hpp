// SPDX-License-Identifier: Apache-2.0
// Telemetry: do utilisation, memory, energy, step marks and step times look like this training?
//
// Claims (default): step marks name exactly the recorded steps in order; the device was busy for
// most of the time; memory settles; the energy counter agrees with the integrated power; no step
// was faster than the hardware can be. Claims (mode "apex", as published): the number of step marks
// is epochs times iterations; at least alpha of the utilisation samples lie above their mean;
// memory rises steeply, then stays; losses fall. Assumes that the readings are real, which nobody
// can know: a fake NVML library is a download away. So findings of this check never accept or
// reject; the report shows failures as suspicious. Cost: parsing the log, microseconds per line.
// Cannot detect: invented readings. As published, apex fails a device that is busy all the time
// (no sample above the mean) and passes "60 % of the samples at 0, 40 % at 1 %".
// Source: Lab Apex, telemetry monitor; soundness.md rule 11.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/detail/telemetry_log.hpp>
#include <potl/checks/field.hpp>
#include <potl/checks/run_view.hpp>
#include <potl/core/finding.hpp>

namespace potl::checks {

struct telemetry_options {
  static constexpr std::string_view check = "telemetry";

  std::string mode = "default";
  double alpha = 0.4;
  double busy_above = 0.05;
  double busy_share = 0.5;
  double memory_spread = 0.25;
  double energy_tolerance = 0.2;
  double rise_share = 0.25;
  std::optional<double> flops_per_step;
  std::optional<double> peak_flops;

  static std::span<const field<telemetry_options>> fields();
  static result<telemetry_options> parse(const json_value& from);
};

/// Findings; outcome::reject here means "does not fit" and weighs nothing (policy.hpp).
std::vector<finding> judge_telemetry(const run_view& run, const telemetry_options& options);

// The single rules, as values.

/// Share of the samples that lie above their own mean (published rule).
double share_above_mean(std::span<const double> samples);

/// Share of the time during which utilisation was at least `floor`; each sample stands for the time
/// since the one before it.
double busy_share_of_time(std::span<const telemetry_sample> samples, double floor);

/// How memory grew.
struct memory_shape {
  double rise_at = 0;  ///< where the largest part of the rise is reached, as a share of the samples
  double spread = 0;   ///< (largest - smallest) / largest of the second half
};
/// In the longest part that no sample begins; empty when fewer than four of it have memory.
std::optional<memory_shape> shape_of_memory(std::span<const telemetry_sample> samples);

/// Empty, or where and why the step marks differ from the recorded steps.
std::string wrong_sequence(const run_view& run, std::span<const telemetry_steps> marks);

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include <potl/checks/telemetry.hpp>

#include "checks/text.hpp"

namespace potl::checks {

double share_above_mean(std::span<const double> samples) {
  if (samples.empty()) return 0;
  const auto count = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
  const auto above =
      std::count_if(samples.begin(), samples.end(), [&](double one) { return one > mean; });
  return static_cast<double>(above) / count;
}

double busy_share_of_time(std::span<const telemetry_sample> samples, double floor) {
  double busy = 0, all = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const double time = samples[i].t - samples[i - 1].t;
    if (!samples[i].utilisation || !(time > 0)) continue;
    all += time;
    if (*samples[i].utilisation >= floor) busy += time;
  }
  return all > 0 ? busy / all : 0;
}

std::optional<memory_shape> shape_of_memory(std::span<const telemetry_sample> samples) {
  std::vector<double> memory;
  for (const telemetry_sample& one : samples) {
    if (one.memory) memory.push_back(*one.memory);
  }
  if (memory.size() < 4) return std::nullopt;
  memory_shape out;
  const auto count = static_cast<double>(memory.size());
  const auto [low, high] = std::minmax_element(memory.begin(), memory.end());
  const double risen = *low + 0.9 * (*high - *low);
  const auto reached =
      std::find_if(memory.begin(), memory.end(), [&](double one) { return one >= risen; });
  out.rise_at = static_cast<double>(reached - memory.begin()) / count;
  const auto half = memory.begin() + static_cast<std::ptrdiff_t>(memory.size() / 2);
  const auto [least, most] = std::minmax_element(half, memory.end());
  out.spread = *most > 0 ? (*most - *least) / *most : 0;
  return out;
}

std::string wrong_sequence(const run_view& run, std::span<const telemetry_steps> marks) {
  std::uint64_t next = 1;
  std::vector<bool> used(run.superseded.size(), false);
  for (const telemetry_steps& one : marks) {
    if (one.first != next) {
      // A resume goes back to where it restored, once each; a crash may have lost marks before.
      bool resumed = false;
      for (std::size_t i = 0; i < used.size() && !resumed; ++i) {
        if (!used[i] && run.superseded[i].from_step + 1 == one.first) {
          used[i] = resumed = true;
        }
      }
      if (!resumed) {
        return "step " + text(one.first) + " is marked where step " + text(next) + " should follow";
      }
    }
    if (one.last > run.last_step()) {
      return "step " + text(one.last) + " is marked, the run ends with step " +
             text(run.last_step());
    }
    for (const std::uint64_t step : {one.first, one.last}) {
      const auto* record = run.step(step);
      if (record != nullptr && record->epoch != one.epoch) {
        return "step " + text(step) + " is marked in epoch " + text(one.epoch) +
               " and recorded in epoch " + text(record->epoch);
      }
    }
    next = one.last + 1;
  }
  if (next != run.last_step() + 1) {
    return "the last mark is of step " + text(next - 1) + ", the run ends with step " +
           text(run.last_step());
  }
  return "";
}

}  // namespace potl::checks

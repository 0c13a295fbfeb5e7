// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include <potl/checks/telemetry.hpp>

#include "checks/text.hpp"

namespace potl::checks {

void close_gaps(std::vector<telemetry_sample>& samples) {
  std::vector<double> pauses;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    if (const double pause = samples[i].t - samples[i - 1].t; pause > 0) pauses.push_back(pause);
  }
  if (pauses.empty()) return;
  // The interval of the sampler doubles in long runs: nearly all are no longer than this.
  const auto usual = pauses.begin() + static_cast<std::ptrdiff_t>((pauses.size() - 1) * 9 / 10);
  std::nth_element(pauses.begin(), usual, pauses.end());
  const double longest = 10 * *usual;
  double before = samples.front().t, away = 0, counted = 0, counter = 0;
  bool goes_on = false;  // the counter, from its last value on
  for (telemetry_sample& one : samples) {
    const double pause = one.t - before;
    before = one.t;
    one.begins = one.begins || !(pause >= 0) || pause > longest;
    if (one.begins) away += pause;
    one.t -= away;
    goes_on = goes_on && !one.begins;
    if (!one.energy) continue;
    if (!goes_on) counted += *one.energy - counter;
    goes_on = true;
    counter = *one.energy;
    *one.energy -= counted;
  }
}

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
  std::vector<double> memory, part;  // the longest part without a gap
  const auto keep_longer = [&] {
    if (part.size() > memory.size()) memory.swap(part);
    part.clear();
  };
  for (const telemetry_sample& one : samples) {
    if (one.begins) keep_longer();
    if (one.memory) part.push_back(*one.memory);
  }
  keep_longer();
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
  std::vector<bool> used(run.resumes.size(), false);
  // A crash may have lost marks, so that steps after a resume may follow none of the others.
  const auto resumed_after = [&](std::uint64_t step) {
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!used[i] && run.resumes[i].from_step == step) return used[i] = true, true;
    }
    return false;
  };
  for (const telemetry_steps& one : marks) {
    if (one.first != next && !resumed_after(one.first - 1)) {
      return "step " + text(one.first) + " is marked where step " + text(next) + " should follow";
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
  if (next != run.last_step() + 1 && !resumed_after(run.last_step())) {
    return "the last mark is of step " + text(next - 1) + ", the run ends with step " +
           text(run.last_step());
  }
  return "";
}

}  // namespace potl::checks

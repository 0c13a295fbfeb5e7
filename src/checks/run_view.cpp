// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/run_view.hpp>

#include <algorithm>

#include <potl/core/rules.hpp>

namespace potl::checks {

const transcript::step_record* run_view::step(std::uint64_t wanted) const noexcept {
  // Intact runs have it right here; damaged ones are searched.
  if (wanted >= 1 && wanted <= steps.size() && steps[wanted - 1].step == wanted) {
    return &steps[wanted - 1];
  }
  const auto at = std::find_if(steps.begin(), steps.end(),
                               [&](const auto& record) { return record.step == wanted; });
  return at == steps.end() ? nullptr : &*at;
}

const transcript::step_record* run_view::superseded_step(std::uint64_t branch,
                                                         std::uint64_t wanted) const noexcept {
  std::size_t offset = 0;
  for (const transcript::superseded_range& range : superseded) {
    const std::uint64_t length =
        range.last_step > range.from_step ? range.last_step - range.from_step : 0;
    if (range.branch == branch && wanted > range.from_step && wanted <= range.last_step) {
      const std::uint64_t at = offset + (wanted - range.from_step - 1);
      return at < superseded_steps.size() && superseded_steps[at].step == wanted
                 ? &superseded_steps[at]
                 : nullptr;
    }
    offset += length;
  }
  return nullptr;
}

namespace {

std::uint64_t last_agreed(const run_view& run) {
  if (!rule_enabled("agreed.step_count")) return run.last_step();
  return run.job_is_own ? run.agreed.steps
                        : std::min<std::uint64_t>(run.agreed.steps, run.steps.size());
}

}  // namespace

std::vector<segment> segments_of(const run_view& run) {
  const std::uint64_t last = last_agreed(run);
  std::vector<segment> out;
  const auto add = [&](std::uint64_t end) {
    const std::uint64_t at = out.empty() ? 0 : out.back().end;
    if (end > at && end <= last) out.push_back({at, end});
  };
  if (rule_enabled("agreed.segments") || run.agreed.store_every != 0) {
    const std::uint64_t every = run.agreed.segment_steps();
    for (std::uint64_t end = every; end < last; end += every) add(end);
  } else {
    for (const transcript::checkpoint_info& one : run.checkpoints) add(one.step);
  }
  add(last);
  return out;
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/run_view.hpp>

#include <algorithm>

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

std::vector<segment> segments_of(const run_view& run) {
  const std::uint64_t last = run.last_step();
  std::vector<std::uint64_t> ends;  // of segments: checkpoints after step 0
  if (run.agreed.store_every == 0) {
    for (const transcript::checkpoint_info& checkpoint : run.checkpoints) {
      if (checkpoint.step > 0 && checkpoint.step < last) ends.push_back(checkpoint.step);
    }
  }
  if (last > 0) ends.push_back(last);
  std::vector<segment> out;
  std::uint64_t at = 0;
  for (const std::uint64_t end : ends) {
    if (end <= at) continue;
    const bool too_far = run.agreed.max_segment != 0 && end - at > run.agreed.max_segment;
    if (too_far && run.agreed.checkpoint_every != 0) {
      const std::uint64_t every = run.agreed.checkpoint_every;
      for (std::uint64_t next = (at / every + 1) * every; next < end; next += every) {
        out.push_back({at, next});
        at = next;
      }
    }
    out.push_back({at, end});
    at = end;
  }
  return out;
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
// Which segments' own noise has to be known before they are judged.
#include <algorithm>
#include <utility>

#include <potl/checks/replay.hpp>

#include "checks/replay/replay_draw.hpp"
#include "checks/replay/replay_group.hpp"
#include "checks/replay/replay_losses.hpp"

namespace potl::checks {
namespace {

// Repeated however few segments there are: each that is left out is inconclusive.
constexpr std::size_t least_repeated = 4;

// With rough sums. About one in three turns the sign that another machine turned.
constexpr std::uint32_t rough_repeats = 6;

// How far beyond what is accepted; 0 where nothing is, or where no noise would help.
double doubt(const run_view& run, const detail::replay_context& context,
             const segment_measurement& one) {
  double out = 0;
  const auto take = [&out](const finding& found) {
    if (found.rule == "transcript.finite" || !found.statistic) return;
    // Where no noise is known yet, the larger distance counts.
    out = std::max(out, *found.statistic / std::max(found.threshold.value_or(0), 1e-30));
  };
  for (const finding& found : detail::judge_losses(run, context, one)) take(found);
  if (one.digest_equal || one.request.superseded) return out;
  for (const group_distance& group : one.distances) {
    if (!group.structure_equal || !group.finite) return 0;  // rejects without any noise
    const auto judged = detail::judge_group(context, one, group.group);
    if (judged.problem) take(*judged.problem);
  }
  return out;
}

segment_request in_full(segment_request request, const replay_options& options) {
  request.noise_repeats = static_cast<std::uint32_t>(options.noise_repeats);
  request.noise_if_equal = true;
  request.rough_repeats = rough_repeats;
  return request;
}

}  // namespace

std::vector<segment_request> plan_noise(const run_view& run, const replay_options& options,
                                        std::span<const segment_measurement> measurements) {
  std::vector<segment_request> out;
  const detail::replay_context context = detail::make_context(run, options, measurements);
  if (context.exact || detail::is_published(options)) return out;
  std::vector<std::pair<double, const segment_measurement*>> doubtful;
  const segment_measurement* first = nullptr;
  for (const segment_measurement& one : measurements) {
    if (one.status != measured::ok) continue;
    const bool known = detail::has_own_noise(context, one);
    if (one.request.start == 0 && !one.request.superseded && !known) first = &one;
    const double by = doubt(run, context, one);
    if (by > 0) doubtful.emplace_back(by, one.request.rough_repeats > 0 ? nullptr : &one);
  }
  if (doubtful.empty()) return out;
  if (first != nullptr) out.push_back(in_full(first->request, options));
  std::erase_if(doubtful,
                [&](const auto& one) { return one.second == nullptr || one.second == first; });
  std::stable_sort(doubtful.begin(), doubtful.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  // What this costs is bounded, whatever was recorded: the noise of these speaks for the others.
  const std::size_t most = std::max(least_repeated, measurements.size() / 5);
  for (std::size_t i = 0; i < doubtful.size() && i < most; ++i) {
    out.push_back(in_full(doubtful[i].second->request, options));
  }
  return out;
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
// Which segments' own noise has to be known before they are judged.
#include <algorithm>
#include <tuple>
#include <utility>

#include <potl/checks/replay.hpp>

#include "checks/replay/replay_draw.hpp"
#include "checks/replay/replay_group.hpp"
#include "checks/replay/replay_losses.hpp"

namespace potl::checks {
namespace {

// Repeated however few segments there are: each that is left out is inconclusive.
constexpr std::size_t least_repeated = 4;

// Repeats with rough sums of all segments together, or a quarter of the segments. About one in
// three turns the sign that another machine turned.
constexpr std::size_t least_rough = 6;

struct doubt {
  const segment_measurement* of = nullptr;
  double by = 0;     ///< how far beyond what is accepted; 0: nothing is, or no noise would help
  bool near = true;  ///< rough sums may excuse it
  detail::accuser accuses = detail::accuser::nothing;
};

doubt doubt_of(const run_view& run, const detail::replay_context& context,
               const segment_measurement& one) {
  doubt out{&one};
  const auto take = [&out](const finding& found) {
    if (found.rule == "transcript.finite" || !found.statistic) return;
    // Where no noise is known yet, the larger distance counts.
    out.by = std::max(out.by, *found.statistic / std::max(found.threshold.value_or(0), 1e-30));
  };
  for (const finding& found : detail::judge_losses(run, context, one)) take(found);
  if (one.request.superseded) out.near = false;  // of any length, and judged by its losses alone
  if (one.digest_equal || one.request.superseded) return out;
  if (detail::turned_skip(run, context, one)) {  // whatever else differs comes of it
    out.accuses = detail::accuser::floats;
    return out;
  }
  for (const group_distance& group : one.distances) {
    if (!group.structure_equal || !group.finite) return {};  // rejects without any noise
    const auto judged = detail::judge_group(context, one, group.group);
    // What a prover may differ in freely must not take the repeats that would convict.
    if (judged.problem && !judged.settled) take(*judged.problem);
    out.near = out.near && judged.near;
    out.accuses = std::max(out.accuses, judged.accuses);
  }
  return out;
}

segment_request in_full(segment_request request, const replay_options& options) {
  request.noise_repeats = static_cast<std::uint32_t>(options.noise_repeats);
  request.noise_if_equal = true;
  return request;
}

// What this costs is bounded, whatever was recorded: the noise of the first ones speaks for the
// others. In steps, because what was superseded may be long.
std::vector<doubt> affordable(const std::vector<doubt>& doubtful,
                              std::span<const segment_measurement> measurements) {
  std::uint64_t longest = 0;
  for (const segment_measurement& one : measurements) {
    if (!one.request.superseded) longest = std::max(longest, one.request.steps());
  }
  const std::uint64_t most = longest * std::max(least_repeated, measurements.size() / 5);
  std::vector<doubt> out;
  std::uint64_t spent = 0;
  for (const doubt& one : doubtful) {
    const std::uint64_t steps = one.of->request.steps();
    if (spent > 0 && spent + steps > most) continue;
    spent += steps;
    out.push_back(one);
  }
  return out;
}

}  // namespace

std::vector<segment_request> plan_noise(const run_view& run, const replay_options& options,
                                        std::span<const segment_measurement> measurements) {
  std::vector<segment_request> out;
  const detail::replay_context context = detail::make_context(run, options, measurements);
  if (context.exact || detail::is_published(options)) return out;
  std::vector<doubt> doubtful;
  const segment_measurement* first = nullptr;
  bool any = false;
  for (const segment_measurement& one : measurements) {
    if (one.status != measured::ok) continue;
    const bool known = detail::has_own_noise(context, one);
    if (one.request.start == 0 && !one.request.superseded && !known) first = &one;
    const doubt found = doubt_of(run, context, one);
    any = any || found.by > 0;
    const bool settled = known && (!found.near || one.request.rough_repeats > 0);
    if (found.by > 0 && !settled) doubtful.push_back(found);
  }
  if (!any) return out;
  // What never accuses comes last: a prover may differ there everywhere, by as much as it likes.
  std::stable_sort(doubtful.begin(), doubtful.end(), [](const doubt& a, const doubt& b) {
    return std::tie(a.accuses, a.by) > std::tie(b.accuses, b.by);
  });
  doubtful = affordable(doubtful, measurements);
  const auto near = static_cast<std::size_t>(
      std::count_if(doubtful.begin(), doubtful.end(), [](const doubt& one) { return one.near; }));
  const std::size_t rough = std::max(least_rough, measurements.size() / 4);
  const bool first_is_doubtful = std::any_of(doubtful.begin(), doubtful.end(),
                                             [&](const doubt& one) { return one.of == first; });
  if (first != nullptr && !first_is_doubtful) out.push_back(in_full(first->request, options));
  for (const doubt& one : doubtful) {
    segment_request& asked = out.emplace_back(in_full(one.of->request, options));
    if (one.near) asked.rough_repeats = static_cast<std::uint32_t>(rough / near);
  }
  return out;
}

}  // namespace potl::checks

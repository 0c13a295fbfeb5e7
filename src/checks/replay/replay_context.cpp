// SPDX-License-Identifier: Apache-2.0
// What the noise of all segments together says.
#include <algorithm>
#include <cmath>
#include <limits>

#include <potl/checks/detail/state_distance.hpp>

#include "checks/replay/replay_draw.hpp"
#include "checks/replay/replay_group.hpp"
#include "checks/replay/replay_own_noise.hpp"

namespace potl::checks::detail {
namespace {

// Where the first segment shows more of a group to be noise, its updates are too small to tell (a
// rate that warms up).
constexpr double noisy_share = 0.5;

template <class Distance>
double smaller_update(const Distance& one) {
  const double out = std::min(one.update_l2, one.replayed_update_l2);
  return std::isfinite(one.update_l2) && std::isfinite(one.replayed_update_l2) ? out : 0;
}

void add(own_noise& to, double l2, double update, double count) {
  if (!std::isfinite(l2) || l2 <= to.l2) return;  // what is not finite is a finding of its own
  const double share = update > 0 ? l2 / update : std::numeric_limits<double>::infinity();
  to = {l2, std::max(to.share, share), count, to.apart};
}

void raise(std::map<std::string, double>& in, const std::string& name, double share) {
  double& at = in[name];
  if (std::isfinite(share) && share > at) at = share;
}

// What was superseded speaks for no other segment: the state that it starts from may follow from
// nothing, and one can be made up in which everything is noise.
void take_noise(const segment_measurement& from, replay_context& to) {
  if (from.request.superseded) return;
  for (const char* which :
       {"parameters", "buffers", "optimizer", "other", "next", "next_buffers"}) {
    raise(to.group_share, which, noise_of_group(from.noise, which).share);
    const bool first = from.request.start == 0;
    double noisy = 0;
    std::map<std::string, first_noise> paths;
    const std::map<std::string, own_noise> tensors = noise_of_tensors(from.noise, which);
    for (const auto& [path, own] : tensors) {
      raise(to.tensor_share, path, own.share);
      if (!first || own.apart || own.share <= to.cap) continue;
      const auto still = tensors.find(path + std::string(where_still));
      paths[path] = {own.l2, (still == tensors.end() ? own : still->second).of_one()};
      noisy += own.count;
    }
    if (paths.empty()) continue;
    const group_distance* group = find(from.noise.front(), which);
    if (group != nullptr && noisy <= noisy_share * group->count) {
      to.noisy_at_first.insert(paths.begin(), paths.end());
    }
  }
  for (const std::vector<double>& repeat : from.noise_losses) {
    for (std::size_t i = 0; i < repeat.size() && i < from.losses.size(); ++i) {
      const double share = std::fabs(repeat[i] - from.losses[i]) / (1 + std::fabs(from.losses[i]));
      if (std::isfinite(share)) to.loss_share = std::max(to.loss_share, share);
    }
  }
}

}  // namespace

const group_distance* find(const std::vector<group_distance>& groups, const std::string& name) {
  const auto at = std::find_if(groups.begin(), groups.end(),
                               [&](const group_distance& one) { return one.group == name; });
  return at == groups.end() ? nullptr : &*at;
}

double update_of(const tensor_distance& one) { return smaller_update(one); }
double update_of(const group_distance& one) { return smaller_update(one); }

std::map<std::string, own_noise> noise_of_tensors(const repeated& from, const std::string& which) {
  std::map<std::string, own_noise> out;
  for (const auto& repeat : from) {
    const group_distance* group = find(repeat, which);
    if (group == nullptr) continue;
    for (const tensor_distance& one : group->tensors) {
      own_noise& of = out[one.path];
      add(of, one.l2, update_of(one), one.count);
      of.apart = one.judged == judged_as::unmoved || is_code(one.judged);
    }
  }
  return out;
}

own_noise noise_of_group(const repeated& from, const std::string& which) {
  own_noise out;
  for (const auto& repeat : from) {
    const group_distance* group = find(repeat, which);
    if (group != nullptr) add(out, group->l2, update_of(*group), group->count);
  }
  return out;
}

bool has_own_noise(const replay_context& context, const segment_measurement& measurement) {
  return measurement.noise.size() >= context.options->noise_repeats;
}

replay_context make_context(const run_view& run, const replay_options& options,
                            std::span<const segment_measurement> measurements) {
  replay_context out;
  out.options = &options;
  out.cap = run.agreed.tolerance_cap;
  out.exact = is_exact(run, options);
  for (const segment_measurement& one : measurements) take_noise(one, out);
  return out;
}

}  // namespace potl::checks::detail

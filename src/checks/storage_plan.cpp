// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/storage_plan.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include <potl/statistics/detail/soundness.hpp>
#include <potl/transcript/job.hpp>

namespace potl::checks {
namespace {

double stored_bytes(const storage_goal& goal, std::uint64_t every) {
  const std::uint64_t count = goal.steps / every + (goal.steps % every != 0) + 1;
  return static_cast<double>(count) * goal.state_bytes;
}

// Of `units` segments between two stored states, how many are trained again on average so that the
// starts of the challenged ones exist: up to the last of them. `samples` of `segments` are drawn,
// here with replacement, so that the sum over the chances that one of the last m starts is drawn,
// 1 - (1 - m / segments)^samples, has a closed form.
double rederived_units(double units, double segments, double samples) {
  if (units <= 1) return 0;
  const auto missed = [&](double m) {
    return std::pow(std::max(0.0, 1 - m / segments), samples + 1);
  };
  const double none = segments / (samples + 1) * (missed(0.5) - missed(units - 0.5));
  return std::clamp(units - 1 - none, 0.0, units - 1);
}

// Of loading and hashing a checkpoint.
constexpr double read_bytes_per_second = 5e8;

storage_plan cost_of(const storage_goal& goal, std::uint64_t every, std::uint64_t store) {
  storage_plan out;
  out.checkpoint_every = every;
  out.store_every = store;
  out.segments = goal.steps / every + (goal.steps % every != 0);
  // The first and the last segment are replayed anyway.
  const std::uint64_t pool = out.segments > 2 ? out.segments - 2 : 0;
  out.samples =
      std::min(pool, statistics::samples_for(out.segments, goal.probability, goal.cheat_fraction));
  out.bytes = stored_bytes(goal, store);
  const double training = static_cast<double>(goal.steps) * goal.step_seconds;
  const auto replayed = static_cast<double>(out.samples + 2);
  // Reach replays the first stretch as a whole.
  const double first = store > every ? static_cast<double>(std::min(store, goal.steps)) : 0;
  const double replaying = (replayed * static_cast<double>(every) + first) * goal.step_seconds;
  const double loading = replayed * 2 * goal.state_bytes / read_bytes_per_second;
  out.verification_fraction = (replaying + loading) / training;
  const auto units = static_cast<double>(std::min(store, goal.steps)) / static_cast<double>(every);
  const double stretches = static_cast<double>(goal.steps) / static_cast<double>(store);
  const double usual =
      rederived_units(units, static_cast<double>(out.segments), static_cast<double>(out.samples));
  // The last segment is always replayed, so that the last stretch is trained as a whole.
  const double rederived = std::max(0.0, stretches - 1) * usual + std::max(0.0, units - 1);
  out.rederivation_fraction =
      rederived * static_cast<double>(every) / static_cast<double>(goal.steps);
  return out;
}

}  // namespace

result<storage_plan> plan_storage(const storage_goal& goal) {
  const bool sane = goal.steps > 0 && goal.steps <= transcript::max_job_steps &&
                    goal.step_seconds > 0 && goal.state_bytes > 0 && goal.probability > 0 &&
                    goal.probability < 1 && goal.cheat_fraction > 0 && goal.cheat_fraction <= 1;
  if (!sane) return error{errc::usage, "storage plan: a number is zero or out of range", ""};
  if (!(goal.budget_bytes >= 2 * goal.state_bytes)) {
    return error{errc::usage, "storage plan: the budget holds less than two checkpoints",
                 "raise the budget; the first and the last state are always stored"};
  }
  std::optional<storage_plan> best;
  // Every length up to 64, then in steps of about a sixteenth.
  for (std::uint64_t every = 1; every <= goal.steps; every += 1 + every / 64 * 4) {
    std::uint64_t store = every;
    if (goal.rederive) {
      const double room = std::floor(goal.budget_bytes / goal.state_bytes) - 1;
      const double least = std::ceil(static_cast<double>(goal.steps) / room);
      const auto multiple =
          static_cast<std::uint64_t>(std::ceil(std::max(1.0, least / static_cast<double>(every))));
      store = multiple * every;
    }
    if (stored_bytes(goal, store) > goal.budget_bytes) continue;
    const storage_plan candidate = cost_of(goal, every, store);
    const double cost = candidate.verification_fraction + candidate.rederivation_fraction;
    if (!best || cost < best->verification_fraction + best->rederivation_fraction) {
      best = candidate;
    }
  }
  return best ? *best : cost_of(goal, goal.steps, goal.steps);
}

}  // namespace potl::checks

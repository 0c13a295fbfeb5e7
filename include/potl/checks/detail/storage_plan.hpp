// SPDX-License-Identifier: Apache-2.0
// How often to store a checkpoint: disk against the cost of verifying, and against re-derivation.
//
// Claims: among all intervals whose checkpoints fit the budget, the one that makes reaching the
// detection goal cheapest. Short segments need fewer replayed steps for the same goal, because the
// unit of sampling is the segment. With re-derivation the segments may be shorter than the distance
// of what is stored (store_every of the job): the prover trains again from the stored state before
// a challenged one, and on the way to the last of several.
// Assumes: replayed steps cost what recorded ones did. Re-derivation assumes a reproducible
// arithmetic, else the prover cannot reach the digest it committed to.
// Cost: microseconds.
// Cannot know: the noise of long segments. Where the arithmetic is not reproducible it grows about
// 10^3 to 10^5 times over ten steps: prefer short ones.
// Source: H. Jia et al., Proof-of-Learning (2103.05633), section V; soundness.md "Replay".
#pragma once

#include <cstdint>

#include <potl/core/result.hpp>

namespace potl::checks {

struct storage_goal {
  std::uint64_t steps = 0;
  double step_seconds = 0;
  double state_bytes = 0;
  double budget_bytes = 0;
  double probability = 0.95;
  double cheat_fraction = 0.05;
  bool rederive = false;  ///< states between stored ones are re-derived on demand
};

struct storage_plan {
  std::uint64_t checkpoint_every = 0;  ///< length of a segment
  std::uint64_t store_every = 0;       ///< of these, every so many steps one is kept
  std::uint64_t segments = 0;
  std::uint64_t samples = 0;         ///< random segments that reach the goal
  double bytes = 0;                  ///< of the stored checkpoints
  double verification_fraction = 0;  ///< replaying and loading, of the training time
  double rederivation_fraction = 0;  ///< what the prover replays to open them, on average
};

/// usage: a goal that makes no sense, or a budget below two checkpoints.
result<storage_plan> plan_storage(const storage_goal& goal);

}  // namespace potl::checks

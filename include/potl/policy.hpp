// SPDX-License-Identifier: Apache-2.0
// How strong evidence must be before a run can be accepted, and what findings amount to.
//
// Claims: a verdict follows from findings and what is registered of their checks, by soundness.md
// rules 7, 10, 11 and 13. Rejected: a check that may reject does. Accepted: the verifier has its
// own job and a valid commitment, nothing in a needed check is inconclusive, and random replay was
// judged at the strength of the policy. Everything else is inconclusive. Assumes
// that findings come from the judges of this library. Cost: none. Cannot detect: what no check
// looked at. The report lists that.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/field.hpp>
#include <potl/core/finding.hpp>

namespace potl {

/// The default goal is the least that is called evidence: twelve random segments reach it in a run
/// of any length. A probability of 0 asks for min_random_segments alone.
struct policy {
  std::uint64_t min_random_segments = 1;
  double probability = 0.9;
  double cheat_fraction = 0.2;

  static std::span<const checks::field<policy>> fields();
  static result<policy> parse(const json_value& from);
  /// See false transitions in this share of the segments, wherever they are, with this probability.
  static policy for_detection(double probability, double cheat_fraction);

  /// Random segments of a run with this many to draw from.
  std::uint64_t samples(std::uint64_t segments) const noexcept;
};

/// What random replay amounted to.
struct replay_strength {
  std::uint64_t segments = 0;  ///< of the run
  std::uint64_t pool = 0;      ///< of these, not replayed anyway (first, last)
  std::uint64_t sampled = 0;   ///< judged at random
  bool all = false;            ///< every segment was judged, drawn or not
  /// Of the pool. What was not drawn counts only where nothing is left: who forges knows the rest.
  std::uint64_t seen() const noexcept { return all ? pool : sampled; }
  /// Probability of seeing one of the false transitions if they are in this share of the segments.
  /// It counts transitions, not steps: a false one may carry the weights anywhere (reach_strength).
  double probability(double cheat_fraction) const noexcept;
};

/// From the judges' findings; all zero when nothing was replayed at random.
replay_strength strength_of(std::span<const finding> findings);

/// The fewest random segments with which the policy is content. What is replayed anyway makes the
/// pool smaller, not the cheat: the same segments count here and in the table of the report.
std::uint64_t segments_needed(replay_strength of, const policy& wanted);

/// How far what was not seen can have moved the weights by itself: decision 19.
struct reach_strength {
  double factor = 0;                 ///< option reach
  std::uint64_t false_segments = 0;  ///< at most, with `probability`
  double probability = 0;
  double displacement =
      0;  ///< of so many, at most, relative to the way from W0 to the last weights
};

/// Nothing unless every stored state was judged to be within reach.
std::optional<reach_strength> reach_of(std::span<const finding> findings);

/// What the verifier held when it looked.
struct standing {
  bool has_run = false;
  bool job_is_own = false;
  bool committed = false;
  /// The verifier's own trusted side made every update (checks/spot_check.hpp): there is no record
  /// to commit to, and spot-checks are what replay is elsewhere.
  bool guarded = false;
};

/// What findings amount to.
struct judgement {
  verdict result = verdict::inconclusive;
  std::string sentence;              ///< the verdict and why, for somebody who does not know potl
  std::vector<std::string> reasons;  ///< why it is inconclusive, all of them
};

/// The verdict over all findings. Pure: the same findings give the same judgement.
judgement judge(std::span<const finding> findings, const standing& where, const policy& wanted);

/// What fails in a check that may not reject becomes a note that says "suspicious". Where this
/// machine does not repeat the agreed steps, what checks that ask a workload reject becomes
/// inconclusive.
std::vector<finding> weigh(std::vector<finding> findings);

/// What a command exits with: 0 accepted, 1 rejected, 3 inconclusive.
int exit_code(verdict what) noexcept;

}  // namespace potl

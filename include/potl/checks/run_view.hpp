// SPDX-License-Identifier: Apache-2.0
// What a check may see of a run, as plain values: tests write one by hand, evidence converts to
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/evidence/evidence.hpp>

namespace potl::checks {

struct movements;

/// What a plan and a judge see of a run: segments and states as the job fixes them.
struct run_view {
  transcript::job agreed;
  digest job_id;
  bool job_is_own = false;
  bool committed = false;
  digest commitment;          ///< input of every challenge; zero if there is none
  std::uint64_t records = 0;  ///< that it covers
  /// Effective history in log order.
  std::span<const transcript::step_record> steps;
  std::span<const transcript::checkpoint_info> checkpoints;  ///< that exist, by step
  std::span<const transcript::superseded_range> superseded;
  /// The replaced steps, range after range.
  std::span<const transcript::step_record> superseded_steps;
  std::span<const transcript::resume_record> resumes;
  bytes_view telemetry;
  /// |W_to - W_from| over the parameters of two stored checkpoints; loads both.
  std::function<result<double>(std::uint64_t from, std::uint64_t to)> parameter_distance;
  /// How far every stretch of reach.hpp moved each tensor; reads every stored state, once in all.
  std::function<std::shared_ptr<const movements>()> moved;
  /// What it is a view of, for checks of other languages; null: written by hand.
  const transcript::evidence* source = nullptr;

  std::uint64_t last_step() const noexcept { return steps.empty() ? 0 : steps.back().step; }
  /// The record of `step`, or null.
  const transcript::step_record* step(std::uint64_t step) const noexcept;
  /// The superseded record of `step` on `branch`, or null.
  const transcript::step_record* superseded_step(std::uint64_t branch,
                                                 std::uint64_t step) const noexcept;
};

/// The view of `run`, which must outlive it.
run_view view_of(const transcript::evidence& run);

/// A stretch between two neighbouring boundaries of the job.
struct segment {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  friend bool operator==(const segment&, const segment&) = default;
};

/// The segments of the job, in order, without gap (soundness.md rule 16): neither records nor files
/// have a say in where they begin, in their number, or in what a draw among them means. A job that
/// the prover wrote has no more steps than were recorded.
std::vector<segment> segments_of(const run_view& run);

/// Whether the record reaches its end: of an unfinished run only those segments can be asked for.
inline bool was_recorded(const run_view& run, const segment& one) {
  return one.end <= run.last_step();
}

}  // namespace potl::checks

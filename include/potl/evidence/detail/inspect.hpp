// SPDX-License-Identifier: Apache-2.0
// What a run directory holds, for people, and which of its checkpoints can go. Neither proves
// anything: evidence.hpp does. Damage is shown, not refused; only a directory without a readable
// log is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl::transcript {

struct stored_file {
  std::string name;  ///< relative to the run directory
  std::uint64_t step = 0;
  std::uint64_t branch = 0;
  std::uint64_t bytes = 0;
};

struct step_range {
  std::uint64_t first_step = 0;
  std::uint64_t last_step = 0;
};

struct run_facts {
  std::optional<digest> job_id, trainer;  ///< as the header says
  std::string software;
  std::optional<std::uint64_t> agreed_steps;  ///< from job.json, if it is the job of the header
  std::uint64_t steps = 0;                    ///< last step of the effective history
  std::uint64_t superseded_steps = 0;
  std::uint64_t records = 0;
  digest root;
  std::uint64_t log_bytes = 0, telemetry_bytes = 0, checkpoint_bytes = 0;
  std::uint64_t rounding_logs = 0, rounding_bytes = 0;  ///< of all branches, as their records say
  bool closed = false, committed = false;
  double seconds = 0;                    ///< sum of the recorded durations
  std::vector<stored_file> checkpoints;  ///< all branches, by step
  std::vector<std::string> unused;       ///< files of a crash in checkpoints/ that no record names
  std::vector<std::optional<double>>
      losses;                       ///< at most 512 means; nothing where one was not finite
  std::vector<step_range> gaps;     ///< between checkpoints further apart than agreed
  std::vector<step_range> resumes;  ///< from_step and last_step of each
  std::vector<std::string> damage;
};

result<run_facts> inspect_run(const std::string& directory);

struct prune_plan {
  std::vector<std::string> remove, keep;  ///< names relative to the run directory
  std::uint64_t bytes = 0;                ///< of the run afterwards
  std::uint64_t segment = 0;  ///< longest distance between checkpoints afterwards, in steps
};

enum class prune_depth {
  verifiable,  ///< no two checkpoints are further apart afterwards than the job's max_segment
  archive,     ///< what is missing then must be derived again before the run can be verified
};

/// Which checkpoints can go so that the run takes at most `max_bytes`: the first, the last and
/// those that resumes started from stay. Of the plans that fit, the one with the shortest segments.
/// usage when none fits (the message says what is reachable), malformed for a damaged run.
result<prune_plan> plan_prune(const std::string& directory, std::uint64_t max_bytes,
                              prune_depth depth = prune_depth::verifiable);

}  // namespace potl::transcript

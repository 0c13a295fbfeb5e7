// SPDX-License-Identifier: Apache-2.0
// The history that a log tells, and where it contradicts itself. One walk serves recovery,
// commitments, evidence and inspection: what one of them calls wrong, all call wrong.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/transcript/detail/record.hpp>

#include "transcript/log.hpp"

namespace potl::transcript {

/// A rounding log's place in the file of its branch.
struct rounding_place {
  rounding_reference log;
  std::uint64_t offset = 0;
};

/// A contradiction, under the rule (core/rules.hpp) that it breaks.
struct anomaly {
  std::string_view rule;
  std::string reason;
  std::optional<std::uint64_t> step;
};

struct history_options {
  chain_rule chain = chain_rule::required;
  std::optional<public_key> key;      ///< verifies resumes; absent: the header's
  std::uint64_t max_signatures = 64;  ///< verified at most; later resumes are not looked at closely
  std::vector<std::uint64_t> roots_at;  ///< tree sizes whose roots are wanted
};

struct history {
  std::optional<header_record> header;
  std::optional<initial_record> initial;
  std::optional<close_record> close;
  /// Effective: ascending in step, each step once. branches[i] belongs to steps[i].
  std::vector<step_record> steps;
  std::vector<std::uint64_t> branches;
  std::vector<step_record> superseded;
  std::vector<std::uint64_t> superseded_branches;  // parallel to superseded
  /// Where the rounding log of each step begins in the file of its branch; parallel to both.
  std::vector<std::uint64_t> rounding_offsets, superseded_rounding_offsets;
  std::vector<std::uint64_t> rounding_bytes;  ///< that the records of each branch name
  std::vector<superseded_range> ranges;
  std::vector<resume_record> resumes;

  std::uint64_t records = 0;
  std::uint64_t bytes = 0;  ///< of the valid prefix
  digest root;
  digest chain;
  std::map<std::uint64_t, digest> roots;  ///< as wanted, where the log is that long
  log_tail tail = log_tail::clean;
  std::string tail_problem;

  std::vector<anomaly> anomalies;  ///< the first of each rule in full, others up to a bound
  std::uint64_t anomaly_count = 0;

  /// The state digest that the log binds to `step` (0: the initial one), or null.
  const digest* state_at(std::uint64_t step) const;
  /// The same for a step of a branch, superseded or not.
  const digest* state_in(std::uint64_t step, std::uint64_t branch) const;
  /// The rounding log that a step of a branch binds, or nothing.
  std::optional<rounding_place> rounding_in(std::uint64_t step, std::uint64_t branch) const;
  /// Index into steps, or nothing.
  std::optional<std::size_t> find(std::uint64_t step) const;
  std::uint64_t last_step() const { return steps.empty() ? 0 : steps.back().step; }
  void add(std::string_view rule, std::string reason, std::optional<std::uint64_t> step = {});
};

/// malformed or unsupported only when the bytes are not a log at all.
result<history> read_history(bytes_view log, const history_options& options = {});

}  // namespace potl::transcript

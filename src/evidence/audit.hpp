// SPDX-License-Identifier: Apache-2.0
// The structural audit: one function per group of rules. Each adds what is wrong, or one finding
// that says what was looked at; a rule that is switched off says nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/finding.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/evidence/evidence.hpp>
#include <potl/transcript/commitment.hpp>

#include "evidence/run_files.hpp"
#include "transcript/history.hpp"

namespace potl::transcript {

class audit_log {
 public:
  explicit audit_log(std::vector<finding>& out) : out_(out) {}

  void reject(std::string_view rule, std::string reason, std::optional<std::uint64_t> step = {});
  void inconclusive(std::string_view rule, std::string reason);
  void note(std::string reason);
  /// Unless the rule has rejected something, or could not be judged.
  void pass(std::string_view rule, std::string reason);

 private:
  bool has_failed(std::string_view rule) const;
  void add(std::string_view rule, outcome result, std::string reason,
           std::optional<std::uint64_t> step);
  std::vector<finding>& out_;
};

/// What the audit looks at.
struct audit_input {
  const job& agreed;
  bool job_is_own = false;
  const history& run;
  const std::optional<run_note>& commitment;
  const std::vector<run_note>& published;
  const std::vector<run_note>& others;
  const std::optional<public_key>& key;  ///< that must have signed
};

/// Whether `rule` is in force; switched-off rules exist in test builds only.
bool in_force(std::string_view rule);

void audit_identity(const audit_input& in, audit_log& log);  // agreed.job, agreed.trainer_key
void audit_structure(const audit_input& in,
                     audit_log& log);  // transcript.chain, .sequence, .resume, agreed.step_count
void audit_history(const audit_input& in, audit_log& log);  // transcript.history
void audit_others(const audit_input& in, audit_log& log);   // the same for in.others alone
void audit_recipe(const audit_input& in,
                  audit_log& log);  // agreed.batch_order, .recipe, .initial_state
void audit_finite(const audit_input& in, audit_log& log);  // transcript.finite

/// agreed.segments: records, and files of states, are where the job says.
void audit_segments(const std::string& directory, const audit_input& in, audit_log& log);
/// transcript.withheld for checkpoints; returns those of the effective history that are there.
/// An error instead of findings: one of them is a symbolic link (docs/decisions/0008).
result<std::vector<checkpoint_info>> audit_checkpoints(const std::string& directory,
                                                       const audit_input& in, audit_log& log);
/// transcript.rounding, and transcript.withheld for rounding logs; an error as above.
status audit_rounding(const std::string& directory, const audit_input& in, audit_log& log);
/// telemetry.log, if it is what the close record binds; an error as above.
result<std::vector<std::uint8_t>> audit_telemetry(const run_files& files, const audit_input& in,
                                                  audit_log& log);

}  // namespace potl::transcript

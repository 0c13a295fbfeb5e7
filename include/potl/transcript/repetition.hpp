// SPDX-License-Identifier: Apache-2.0
// A run and its repetition by an auditor, compared step by step, also while the run still grows.
//
// Claims: agreement up to a step means that the log, as it was heard, names for each step up to it
// the samples, loss, learning rates and state that the auditor computed, bit for bit. Later
// branches of resumed runs are compared as well; what a resume replaced before it was compared is
// not. In log64 a step is what its rounding log makes of it: a step that was recorded with another
// log than the auditor followed is not compared, but named.
// Assumes: a reproducible arithmetic; else honest machines differ. Whose log it is, and that it is
// the committed one, is for the audit of evidence (evidence.hpp).
// Cost: 100 bytes per repeated step (and 56 in log64), and the records that are heard and not yet
// repeated, up to the first difference: feed as much as the next step needs.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/transcript/detail/record.hpp>
#include <potl/transcript/job.hpp>

namespace potl::transcript {

/// The first place where a run and its repetition part.
struct run_difference {
  std::uint64_t step = 0;  ///< 0: before the first one
  /// "initial state", "samples", "learning rates", "loss", "skipped update", "state", or "record"
  /// of a step that was recorded again after a resume.
  std::string field;
  std::string sentence;  ///< both values, where they can be read
};

/// Where a step's rounding log lies (log64).
struct heard_log {
  std::uint64_t branch = 0;  ///< of rounding/branch-N.log
  std::uint64_t offset = 0;
  rounding_reference bound;  ///< what the step's record says of it
};

/// Takes the bytes of both logs in pieces.
class repetition {
 public:
  explicit repetition(const job& agreed);

  /// Bytes of the run's transcript.log from position() on. What no whole frame follows in is left
  /// for the next call: a crash may take it back. malformed, unsupported or mismatch when they
  /// cannot be the continuation of this job's log; nothing is compared after that.
  status hear(bytes_view more);
  /// The same of the auditor's own log, which names another trainer. internal when a step that the
  /// auditor did twice came out in two ways.
  status hear_own(bytes_view more);
  /// Bytes of whole frames so far.
  std::uint64_t position() const noexcept { return run_.position; }
  std::uint64_t own_position() const noexcept { return auditor_.position; }

  /// The last step of the run's log so far.
  std::uint64_t heard_steps() const noexcept { return run_.steps; }
  /// How many steps the auditor repeated.
  std::uint64_t repeated_steps() const noexcept { return own_.size(); }
  /// The run's log has ended: nothing may follow.
  bool is_closed() const noexcept { return run_.closed; }

  /// Steps, from the first on, that both sides have and that are the same.
  std::uint64_t agreed_steps() const noexcept { return agreed_; }
  const std::optional<run_difference>& difference() const noexcept { return difference_; }
  /// The rounding log of a step's last record so far.
  std::optional<heard_log> rounding_of(std::uint64_t step) const;
  /// The first step that was recorded with another rounding log than the auditor followed: after a
  /// resume, or because the log could not be followed.
  std::optional<std::uint64_t> other_rounding() const noexcept { return other_rounding_; }

 private:
  struct repeated_step {
    digest state, rest;
    std::optional<digest> rounding;
  };
  /// A log that is read as it grows.
  struct stream {
    digest chain;
    std::uint64_t position = 0, records = 0, steps = 0;
    bool closed = false;
    std::optional<error> broken;
  };
  status feed(stream& log, bytes_view more, bool is_own);
  status take(stream& log, const record& what, bool is_own);
  status take_step(const step_record& theirs);
  status repeat(const step_record& own);
  void compare_initial();
  void compare(const step_record& theirs, const step_record& own);
  void compare_again(const step_record& theirs);
  bool follows(const step_record& theirs, const std::optional<digest>& followed);
  void note_other_rounding(std::uint64_t step);

  bool follows_logs_;
  std::uint64_t steps_, max_resumes_;
  digest job_id_;
  std::optional<digest> trainer_, initial_, own_initial_;
  stream run_, auditor_;
  std::uint64_t resumes_ = 0, rounding_bytes_ = 0, agreed_ = 0;
  std::optional<std::uint64_t> other_rounding_;
  std::vector<heard_log> logs_;  ///< of the steps heard, in log64; no bytes where there is none
  std::vector<repeated_step> own_;
  std::deque<step_record> ahead_;  ///< heard, not yet repeated
  std::optional<run_difference> difference_;
};

}  // namespace potl::transcript

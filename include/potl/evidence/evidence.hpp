// SPDX-License-Identifier: Apache-2.0
// Evidence: a run directory after the structural audit, the only view of a run that checks have.
// Opening it reads the log once, recomputes the Merkle root, follows resumes and compares every
// record with the client's job. What is wrong becomes findings (report.hpp), a log without a head
// that the pinned trainer committed to included; only unreadable input that nobody vouched for,
// symbolic links and I/O are errors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/finding.hpp>
#include <potl/core/result.hpp>
#include <potl/transcript/detail/record.hpp>
#include <potl/transcript/job.hpp>
#include <potl/transcript/operator_trace.hpp>
#include <potl/transcript/state.hpp>

namespace potl::transcript {

/// Brings `size` bytes from `offset` on of a file beneath the directory, which are read next.
/// missing: they are withheld; io, limit: the verifier's own trouble.
using file_fetcher =
    std::function<status(const std::string& name, std::uint64_t offset, std::uint64_t size)>;

/// A job that the prover wrote may claim any number of samples: so many are ordered or drawn.
inline constexpr std::uint64_t max_foreign_samples = std::uint64_t{1} << 22;

/// Where a run lies, and what the verifier holds against it.
struct evidence_options {
  std::string directory{};
  std::optional<job> client_job{};  ///< the verifier's own; absent: the run's, and never "accepted"
  std::string commitment{};         ///< signed note; empty: never "accepted"
  std::vector<std::string> published{};  ///< earlier signed notes that the commitment must extend
  std::vector<std::string> other_commitments{};  ///< commitments seen for the same job
  /// Largest checkpoint that is read; absent: what the expected sizes say, at most 64 GiB.
  std::optional<std::uint64_t> max_checkpoint_bytes{};
  /// SHA-256 of the log that somebody judged already: any other is refused (mismatch).
  std::optional<digest> expected_log{};
  /// Of a directory that mirrors a run elsewhere: its files have their sizes there, and no bytes.
  file_fetcher fetch{};
};

/// A run whose log was read once and compared with the client's job and commitment.
class evidence {
 public:
  static result<evidence> open(const evidence_options& options);

  const job& agreed() const;
  bool job_is_own() const;
  bool committed() const;
  /// Whether the trainer closed the record: nothing is added to it any more.
  bool closed() const;
  /// The root that the commitment signs (recomputed from the log); input of every challenge.
  const digest& commitment_digest() const;
  const digest& log_digest() const;              ///< SHA-256 of transcript.log as it was read
  std::uint64_t records() const;                 ///< that the root covers
  const std::vector<finding>& findings() const;  ///< of the structural audit, check = "transcript"
  /// The commitment as it was given; empty: none was.
  const std::string& commitment_note() const;
  /// What the audit says to other commitments, as if they had been given to open().
  result<std::vector<finding>> compare_commitments(const std::vector<std::string>& others) const;
  /// Whether the audit alone rejects the run. Then nothing of it is replayed: what a prover sends
  /// must not make a verifier work (soundness.md rule 16).
  bool rejected() const;
  /// Effective history: steps()[i].step == i + 1 where intact.
  const std::vector<step_record>& steps() const;
  const initial_record* initial() const;
  /// Of the effective history, by step; only files that exist.
  const std::vector<checkpoint_info>& checkpoints() const;
  /// Of the effective history, by step: those that a segment begins or ends with, and that are not
  /// stored, or not any more.
  std::vector<checkpoint_info> missing_checkpoints() const;
  const std::vector<superseded_range>& superseded() const;
  const std::vector<step_record>& superseded_steps() const;
  const std::vector<resume_record>& resumes() const;
  /// Bytes of telemetry.log as committed; may be empty.
  const std::vector<std::uint8_t>& telemetry() const;
  std::uint64_t log_bytes() const;

  /// Tells the size of the initial state of this task, as the verifier knows it from its own. A
  /// checkpoint or a step's rounding log beyond 8 times that and 64 MiB is refused (limit) before
  /// any of it is read into memory.
  void expect_state_bytes(std::uint64_t initial) const noexcept;
  /// Tells the largest of the verifier's own states with all that its steps made: a checkpoint
  /// beyond twice that and 64 MiB is refused.
  void expect_largest_state_bytes(std::uint64_t largest) const noexcept;

  /// Digest that the log binds to the state after `step` of the effective history (0: before the
  /// first), or null.
  const digest* state_digest(std::uint64_t step) const;
  /// The state stored at `step`, checked against its leaf. missing: withheld; mismatch: tampered;
  /// io (the whole run is gone, too), limit: the verifier's own trouble.
  result<state> load_state(std::uint64_t step) const;
  /// The same in a branch, superseded or not.
  result<state> load_state(std::uint64_t step, std::uint64_t branch) const;

  /// The rounding log of a step of the effective history, or of a branch: its bytes, as bound by
  /// the step's leaf. missing: withheld, or none is bound; mismatch: tampered; io: own trouble.
  result<std::vector<std::uint8_t>> load_rounding_log(std::uint64_t step) const;
  result<std::vector<std::uint8_t>> load_rounding_log(std::uint64_t step,
                                                      std::uint64_t branch) const;
  /// The trace of a step that the trainer left: operator_trace.hpp's read_trace.
  result<operator_trace> load_trace(std::uint64_t step) const;
  /// What a check measured of the stored states, made by the first call and kept with the run: to
  /// plan and to judge it is read once.
  std::shared_ptr<const void> once(
      const std::function<std::shared_ptr<const void>()>& measure) const;

  /// What the leaf binds; nothing where there is none.
  std::optional<rounding_reference> rounding_log_of(std::uint64_t step) const;
  std::optional<rounding_reference> rounding_log_of(std::uint64_t step, std::uint64_t branch) const;

 private:
  struct body;
  result<std::shared_ptr<const checkpoint_base>> base() const;
  explicit evidence(std::shared_ptr<const body> content) : body_(std::move(content)) {}
  std::shared_ptr<const body> body_;
};

}  // namespace potl::transcript

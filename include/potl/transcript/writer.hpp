// SPDX-License-Identifier: Apache-2.0
// Recording a run. The trainer hands over a captured state (snapshot.hpp) after every update and
// goes on; a background thread hashes it, stores checkpoints and appends records, another waits for
// the disk.
//
// Claims: acknowledged() is the last step whose record, and whose checkpoint if it has one, are
// durable: neither `kill -9` nor a power cut loses it. A checkpoint is durable before the record
// that names it is written; so are rounding logs before the record is acknowledged, and before the
// next checkpoint. What a crash leaves is a prefix of complete records, perhaps followed by part of
// one, which resume() drops. Errors (a full disk) come back from the next call, after
// what was written before has been synced and acknowledged, and the writer refuses to go on. Cost:
// at most `queue_states` states exist at any time, if the trainer captures one at a time. When the
// background is further behind than that, append_step does its work, or a share of the hashing,
// before it sleeps. Records are synced in groups, so acknowledged() follows after about 10 ms (at
// once for a checkpoint).
//
//   potl::transcript::snapshot_memory memory;
//   auto log = writer::create({.directory = "runs/1"}, job, key).value();
//   log.append_initial(capture(tree(), memory).value()).value();
//   for (...) { train(); log.append_step(capture(tree(), memory).value(), {.step = t,
//   ...}).value(); } log.close().value(); std::string note = commit_run("runs/1", key).value();
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <potl/core/result.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/transcript/detail/record.hpp>
#include <potl/transcript/job.hpp>
#include <potl/transcript/state.hpp>

namespace potl::transcript {

struct writer_options {
  std::string directory;
  std::string software;       ///< recorded in the header, e.g. "potl 0.1.0 my_trainer 3"
  unsigned queue_states = 2;  ///< captured states in existence at most; at least 1
  unsigned hash_threads = 1;
  bool past_limits = false;  ///< for forgers: resumes more often than the job allows
};

/// What a trainer says about one step; see step_record.
struct step_entry {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::span<const std::int64_t> sample_ids = {};
  double loss = 0;
  std::span<const double> rates = {};
  std::uint64_t random_draws = 0;
  std::uint32_t flags = 0;  ///< skipped, non_finite; the writer adds resumed and checkpoint
  std::uint64_t duration_ns = 0;
  bool checkpoint = false;
  /// In log64: the canonical bytes of the step's rounding log, which are copied.
  bytes_view rounding_log = {};
};

/// Whether a directory holds the log of a run that has a state, to be resumed. usage when it is no
/// directory, or holds no such log and files that are not a run's.
result<bool> holds_run(const std::string& directory);

/// One run being recorded. One thread at a time may call it. Destroying it is abandon().
class writer {
 public:
  /// A new run. usage when the directory holds one already, or files that are not a run's; what a
  /// crash before the first state left is replaced. The key must outlive the writer.
  static result<writer> create(const writer_options& options, const job& agreed,
                               const signing_key& key);

  struct resumed;
  /// Goes on with an interrupted run: drops a torn tail, restores the newest checkpoint that hashes
  /// to its leaf, and appends a signed resume record. usage for another job, a closed run,
  /// another key, or one resume, or superseded step, more than the job allows: verifiers reject
  /// that; malformed for a damaged log; missing when no checkpoint is usable.
  static result<resumed> resume(const writer_options& options, const job& agreed,
                                const signing_key& key);

  writer(writer&&) noexcept;
  writer& operator=(writer&&) noexcept;
  ~writer();

  /// The state before the first step; always stored as a checkpoint.
  status append_initial(state before);
  /// usage unless steps come one after the other.
  status append_step(state after, const step_entry& entry);
  /// For a step that is no checkpoint, where its state is known by its digest alone.
  status append_step(const digest& after, const step_entry& entry);

  /// The last step that is durable.
  std::uint64_t acknowledged() const;
  /// Waits until everything appended is durable.
  status flush();
  /// flush(), then a signed note over the records so far, which the commitment will have to extend.
  result<std::string> publish();
  /// Appends the close record, which binds telemetry.log, and ends the recording.
  status close();
  /// Stops after what is queued is durable, without a close record: the run can be resumed.
  status abandon();

 private:
  struct body;
  explicit writer(std::unique_ptr<body> content);
  std::unique_ptr<body> body_;
};

/// A writer that goes on with an interrupted run, and where.
struct writer::resumed {
  writer recorder;
  std::uint64_t step = 0;  ///< the last step that stands; go on with the next
  state at;                ///< state after that step
};

}  // namespace potl::transcript

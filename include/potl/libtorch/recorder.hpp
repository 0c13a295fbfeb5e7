// SPDX-License-Identifier: Apache-2.0
// Recording a LibTorch training: every step appends a record (in log64 with its rounding log), and
// agreed ones a checkpoint; hashing and writing happen on background threads
// (transcript/writer.hpp).
//
//   potl::libtorch::workload work(build, job);
//   potl::libtorch::recorder run("runs/1", work, key);
//   while (!run.done()) run.step();
//   const std::string commitment = run.finish();
//
// A directory that holds an interrupted run of the same job is resumed: the workload is restored to
// the last intact checkpoint, and a signed resume record says so. Destroying a recorder that is not
// finished leaves such a run behind. What goes wrong throws potl::exception.
#pragma once

#include <torch/version.h>

#include <optional>
#include <string>
#include <utility>

#include <potl/libtorch/workload.hpp>
#include <potl/transcript/commitment.hpp>
#include <potl/transcript/writer.hpp>

namespace potl::libtorch {

class recorder {
 public:
  /// The workload and the key must outlive it. A new run begins with a workload that has run no
  /// step.
  recorder(std::string directory, workload& work, const signing_key& key)
      : directory_(std::move(directory)), work_(work), key_(key), log_(open()) {}
  recorder(std::string directory, workload& work, signing_key&& key) = delete;
  recorder(const recorder&) = delete;
  recorder& operator=(const recorder&) = delete;
  ~recorder() = default;

  /// Whether all agreed steps are recorded.
  bool done() const noexcept { return recorded_ == work_.agreed().steps; }

  /// Runs the next step and records it.
  step_result step() {
    step_result out = work_.run_step(recorded_ + 1);
    append(out);
    return out;
  }

  /// Records the workload's present state as the outcome of `what`: the second half of step(), for
  /// loops of one's own. usage when other steps or other code than the workload's led there: a
  /// verifier would reject the run.
  void append(const step_result& what) {
    const transcript::job& job = work_.agreed();
    if (const auto why = work_.not_the_outcome_of(what.step)) {
      throw exception(
          {errc::usage,
           "this is not the state after step " + std::to_string(what.step) + ": " + *why,
           "run each step once, append it at once, and leave the model as it is in "
           "between; recording again resumes before this step"});
    }
    if (const std::string why = work_.other_end(what.step, what.loss); !why.empty()) {
      throw exception({errc::mismatch, why, ""});
    }
    transcript::step_entry entry;
    entry.step = what.step;
    entry.epoch = job.epoch_of(what.step);
    entry.sample_ids = order_.of(what.step);
    entry.loss = what.loss;
    entry.rates = what.rates;
    entry.flags = static_cast<std::uint32_t>(what.non_finite ? transcript::step_flag::non_finite
                                                             : transcript::step_flag::none);
    entry.duration_ns = what.duration_ns;
    entry.checkpoint = job.is_checkpoint(what.step);
    entry.rounding_log = what.rounding_log;
    log_.append_step(work_.capture(), entry).value();
    recorded_ = what.step;
  }

  /// The last step that is durable.
  std::uint64_t acknowledged() const { return log_.acknowledged(); }

  /// Signs the log as it is now: the commitment will have to extend this note.
  std::string publish() { return log_.publish().value(); }

  /// Ends the run and commits to it: the signed note, to be given to the verifier. usage before
  /// done(): a run that ends early is rejected, and a commitment cannot be taken back.
  std::string finish() {
    if (!done()) {
      throw exception({errc::usage,
                       "only " + std::to_string(recorded_) + " of the agreed " +
                           std::to_string(work_.agreed().steps) + " steps are recorded",
                       "go on until done(), or destroy the recorder and resume later"});
    }
    log_.close().value();
    return transcript::commit_run(directory_, key_).value();
  }

 private:
  transcript::writer open() {
    const std::optional<digest>& pinned = work_.agreed().trainer;
    if (pinned && *pinned != digest{key_.verifier().raw()}) {
      throw exception({errc::usage,
                       "this is not the trainer's key: the job pins " + pinned->hex() +
                           ", and the key given is " + key_.verifier().hex(),
                       "record with the private key that belongs to the job's trainer"});
    }
    transcript::writer_options options;
    options.directory = directory_;
    options.software = std::string("potl LibTorch ") + TORCH_VERSION;
    if (transcript::holds_run(directory_).value()) {
      auto resumed = transcript::writer::resume(options, work_.agreed(), key_).value();
      work_.load_state(resumed.at, resumed.step);
      recorded_ = resumed.step;
      return std::move(resumed.recorder);
    }
    if (work_.step() != 0) {
      throw exception({errc::usage,
                       "the workload has run to step " + std::to_string(work_.step()) +
                           ", and a recording begins before the first",
                       "record with a workload that has run no step"});
    }
    auto log = transcript::writer::create(options, work_.agreed(), key_).value();
    log.append_initial(work_.capture()).value();
    return log;
  }

  std::string directory_;
  workload& work_;
  const signing_key& key_;
  std::uint64_t recorded_ = 0;
  transcript::batch_order order_{work_.agreed()};
  transcript::writer log_;
};

}  // namespace potl::libtorch

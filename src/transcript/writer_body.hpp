// SPDX-License-Identifier: Apache-2.0
// Two threads behind a writer: one hashes states, stores checkpoints and appends frames in order;
// one syncs the log and moves the acknowledged step on. They share a queue and the first error.
// When the queue is full, the trainer does not sleep: it takes the next record itself, or a share
// of the hashing.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <potl/core/detail/home_process.hpp>
#include <potl/core/directory_lock.hpp>
#include <potl/core/file.hpp>
#include <potl/crypto/merkle.hpp>
#include <potl/transcript/writer.hpp>

#include "transcript/log.hpp"
#include "transcript/rounding_store.hpp"

namespace potl::transcript {

inline error usage(const std::string& message, const std::string& remedy) {
  return {errc::usage, message, remedy};
}

/// Holds a run directory for one recorder; usage when another has it. Where the file system has no
/// locks, that of clusters for example, there is none.
result<directory_lock> lock_run(const std::string& directory);

/// Where a log stands; what recovery hands to the writer.
struct log_position {
  digest chain;
  merkle_frontier tree;
  std::uint64_t step = 0;  ///< last step of the effective history
  digest state;            ///< after it
  bool has_initial = false;
  std::uint64_t branch = 0;  ///< resumes so far
  bool resumed = false;      ///< the next step is the first after a resume
};

/// What a record says of the state after it: nothing, its digest, or the state to hash.
using recorded_state = std::variant<std::monostate, digest, state>;

struct writer::body {
  body(const writer_options& options, const job& agreed, const signing_key& key);
  ~body();

  /// Opens the log and starts the threads. `lock` is held to the end.
  status start(log_position position, directory_lock lock);
  /// Appends and counts `what` as the next leaf. `after` fills in its digest; with `checkpoint`, it
  /// is stored first; so is a step's rounding log, if it has one.
  status enqueue(record what, recorded_state after, bool checkpoint,
                 std::vector<std::uint8_t> rounding_log = {});
  status append_step(recorded_state after, const step_entry& entry);
  status flush();
  /// Waits for the queue, then ends both threads.
  status stop();
  /// The first error, also that this is another process.
  status failure();

  const detail::home_process home;
  writer_options options;
  digest job_id;
  const signing_key& key;
  log_position position;  // of what was enqueued; only its `chain`, `tree` and `state` belong to
                          // the thread that appends
  bool ended = false;     // closed or abandoned
  std::optional<checkpoint_base> base;  // of the thread that appends: what checkpoints leave out

  std::mutex mutex;
  std::condition_variable
      changed;  // something is done: whoever waits for room or for the disk looks again
  std::uint64_t acknowledged_step = 0;

 private:
  struct item {
    record what;
    recorded_state after;
    bool checkpoint = false;
    std::vector<std::uint8_t> rounding_log;
  };
  void append_loop();
  void sync_loop();
  /// Appends the front of the queue, in whichever thread has the time; needs !appending.
  void append_next(std::unique_lock<std::mutex>& lock);
  status append(item& next, digest& leaf);
  status store(const item& next, std::uint64_t step);
  status keep_rounding_log(item& next);
  void help(const state& shared);
  void fail_locked(error why);
  /// The first error, once what was appended before it is on the disk and acknowledged.
  status report(std::unique_lock<std::mutex>& lock);
  void wake_all();

  std::deque<item> queue;
  std::size_t states = 0;      // captured states that the writer still holds
  std::uint64_t enqueued = 0;  // records
  std::uint64_t appended = 0;
  std::uint64_t synced = 0;
  std::uint64_t appended_step = 0;
  std::uint64_t urgent = 0;      // so many records are to be synced as soon as possible
  bool appending = false;        // a thread is in append(), where others must not be
  std::optional<state> in_hand;  // what that thread hashes, for whoever would wait for it
  bool syncer_idle = false;
  std::optional<error> failed;
  bool settled = false;  // of a failure: what precedes it is synced, or cannot be
  std::condition_variable to_append,
      to_sync;  // one waiter each: a wake-up costs what a short step takes
  bool stopping = false;
  directory_lock lock_of_run;
  std::vector<std::uint8_t> frame;  // reused
  std::optional<append_file> log;
  std::optional<append_file>
      log_to_sync;  // its own descriptor: the two threads share nothing unlocked
  std::optional<rounding_store> rounding;
  std::thread appender, syncer;
};

/// What a recording is called in its header.
std::string limited_software(const std::string& text);

}  // namespace potl::transcript

// SPDX-License-Identifier: Apache-2.0
#include "transcript/writer_body.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <potl/numeric/rounding_log.hpp>

namespace potl::transcript {
namespace {

// A power cut costs at most these records more than the disk would.
constexpr std::chrono::milliseconds sync_interval(10);

error forked() {
  return usage("the recording goes on in the process that began it",
               "record there, and begin processes beside it before the recorder, or by exec");
}

}  // namespace

result<directory_lock> lock_run(const std::string& directory) {
  result<directory_lock> out =
      directory_lock::take(directory, directory + " is being recorded by another writer",
                           "wait for it, or end the process that holds it");
  if (!out && out.why().code == errc::unsupported) return directory_lock();
  return out;
}

writer::body::body(const writer_options& given, const job& agreed, const signing_key& signer)
    : options(given), job_id(agreed.id()), key(signer) {
  options.queue_states = std::max(options.queue_states, 1u);
  options.hash_threads = std::max(options.hash_threads, 1u);
}

writer::body::~body() {
  // Whatever goes wrong here was not acknowledged.
  static_cast<void>(stop());
}

status writer::body::start(log_position where, directory_lock lock) {
  lock_of_run = std::move(lock);
  const std::string path = options.directory + "/" + std::string(log_name);
  result<append_file> first = append_file::open(path);
  if (!first) return first.why();
  result<append_file> second = append_file::open(path);
  if (!second) return second.why();
  log.emplace(std::move(*first));
  log_to_sync.emplace(std::move(*second));
  position = std::move(where);
  rounding.emplace(options.directory, position.branch);
  acknowledged_step = position.step;
  appended_step = position.step;
  appender = std::thread([this] { append_loop(); });
  syncer = std::thread([this] { sync_loop(); });
  return unit{};
}

status writer::body::failure() {
  if (!home.is_here()) return forked();
  std::unique_lock lock(mutex);
  return report(lock);
}

status writer::body::report(std::unique_lock<std::mutex>& lock) {
  if (!failed) return unit{};
  changed.wait(lock, [&] { return settled; });
  return *failed;
}

void writer::body::fail_locked(error why) {
  if (!failed) failed = std::move(why);
  if (synced == appended) settled = true;
  queue.clear();
  states = 0;
  wake_all();
}

void writer::body::wake_all() {
  changed.notify_all();
  to_append.notify_all();
  to_sync.notify_all();
}

status writer::body::enqueue(record what, recorded_state after, bool checkpoint,
                             std::vector<std::uint8_t> rounding_log) {
  if (!home.is_here()) return forked();
  std::unique_lock lock(mutex);
  if (status reported = report(lock); !reported) return reported;
  const bool holds_state = std::holds_alternative<state>(after);
  const bool first = queue.empty() && !appending;
  queue.push_back({std::move(what), std::move(after), checkpoint, std::move(rounding_log)});
  ++enqueued;
  if (holds_state) ++states;
  if (first) to_append.notify_one();
  // The trainer will capture another one before it comes back. If there is no room for it yet, the
  // processors have more to do than they can, and sleeping would add switches between threads.
  while (!failed && states >= options.queue_states) {
    if (!appending) {
      append_next(lock);
    } else if (in_hand) {
      const state shared = *std::exchange(in_hand, std::nullopt);
      lock.unlock();
      help(shared);
      lock.lock();
    } else {
      changed.wait(lock);
    }
  }
  return report(lock);
}

void writer::body::help(const state& shared) {
  try {
    static_cast<void>(shared.state_digest(options.hash_threads));
  } catch (const std::exception&) {
    // Whoever has it in hand meets the same failure and says so.
  }
}

status writer::body::flush() {
  if (!home.is_here()) return forked();
  std::unique_lock lock(mutex);
  urgent = enqueued;
  to_sync.notify_one();
  changed.wait(lock, [&] { return failed || synced == enqueued; });
  return report(lock);
}

status writer::body::stop() {
  if (!home.is_here()) return forked();
  if (!appender.joinable()) return failure();
  const status flushed = flush();
  {
    const std::lock_guard lock(mutex);
    stopping = true;
    wake_all();
  }
  appender.join();
  syncer.join();
  log.reset();
  log_to_sync.reset();
  lock_of_run.release();
  return flushed;
}

void writer::body::append_loop() {
  std::unique_lock lock(mutex);
  for (;;) {
    to_append.wait(lock, [&] { return stopping || (!queue.empty() && !appending); });
    if (queue.empty()) return;
    append_next(lock);
  }
}

void writer::body::append_next(std::unique_lock<std::mutex>& lock) {
  std::optional<item> next(std::move(queue.front()));
  queue.pop_front();
  const auto* held = std::get_if<state>(&next->after);
  const bool holds_state = held != nullptr;
  const auto* one_step = std::get_if<step_record>(&next->what);
  const std::uint64_t step = one_step != nullptr ? one_step->step : appended_step;
  const bool soon = next->checkpoint || one_step == nullptr;
  appending = true;
  if (held != nullptr) in_hand = *held;
  lock.unlock();
  std::optional<error> why;
  digest leaf;
  try {
    const status done = append(*next, leaf);
    if (!done) why = done.why();
  } catch (const exception& thrown) {
    why = thrown.details();
  } catch (const std::exception& thrown) {
    why = error{errc::internal, std::string("recording: ") + thrown.what(), ""};
  }
  next.reset();
  lock.lock();
  appending = false;
  in_hand.reset();
  if (why) return fail_locked(std::move(*why));
  position.tree.append(leaf);
  ++appended;
  appended_step = step;
  // Only now: a trainer whose record could not be written hears of it before its next step is over.
  if (holds_state && states != 0) --states;
  if (soon) urgent = appended;
  if (syncer_idle || soon) to_sync.notify_one();
  if (!queue.empty()) to_append.notify_one();
  changed.notify_all();
}

status writer::body::append(item& next, digest& leaf) {
  std::uint64_t step = 0;
  auto* one_step = std::get_if<step_record>(&next.what);
  if (one_step != nullptr) step = one_step->step;
  if (status kept = keep_rounding_log(next); !kept) return kept;
  if (!std::holds_alternative<std::monostate>(next.after)) {
    const auto* held = std::get_if<state>(&next.after);
    const digest whole =
        held != nullptr ? held->state_digest(options.hash_threads) : std::get<digest>(next.after);
    {
      // Nobody can help any more, and what is in hand is memory.
      const std::lock_guard lock(mutex);
      in_hand.reset();
    }
    if (one_step != nullptr) one_step->state = whole;
    if (auto* initial = std::get_if<initial_record>(&next.what)) initial->state = whole;
    position.state = whole;
    if (next.checkpoint) {
      if (status stored = store(next, step); !stored) return stored;
    }
    next.after = {};
  }
  if (auto* close = std::get_if<close_record>(&next.what)) close->state = position.state;
  frame.clear();
  append_frame(next.what, position.chain, frame);
  if (status written = log->append(frame); !written) return written;
  leaf = leaf_hash(bytes_view(frame).subspan(4, frame.size() - 4 - digest::size));
  return unit{};
}

status writer::body::keep_rounding_log(item& next) {
  auto* one_step = std::get_if<step_record>(&next.what);
  if (one_step == nullptr || next.rounding_log.empty()) return unit{};
  one_step->rounding =
      rounding_reference{numeric::rounding_log_digest(next.rounding_log), next.rounding_log.size()};
  if (status appended_log = rounding->append(next.rounding_log); !appended_log) return appended_log;
  next.rounding_log = {};
  return unit{};
}

status writer::body::store(const item& next, std::uint64_t step) {
  // A recovery that starts from the checkpoint needs the logs that led to it.
  if (status synced_logs = rounding->sync_data(); !synced_logs) return synced_logs;
  const std::string path = options.directory + "/" + checkpoint_entry(step, position.branch);
  const state& after = std::get<state>(next.after);
  if (status saved = save_checkpoint(path, after, base ? &*base : nullptr); !saved) {
    return saved;
  }
  if (std::holds_alternative<initial_record>(next.what)) {
    base = checkpoint_base::to_write(after);
  }
  return unit{};
}

void writer::body::sync_loop() {
  auto earliest = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex);
  for (;;) {
    syncer_idle = true;
    to_sync.wait(lock, [&] { return stopping || appended != synced; });
    syncer_idle = false;
    if (appended == synced) return;
    // What is appended meanwhile is committed in the same group: syncing costs what a short step
    // takes, whatever there is to write.
    to_sync.wait_until(lock, earliest, [&] { return stopping || failed || urgent > synced; });
    const std::uint64_t records = appended;
    const std::uint64_t step = appended_step;
    lock.unlock();
    earliest = std::chrono::steady_clock::now() + sync_interval;
    status done = rounding->sync_data();
    if (done) done = log_to_sync->sync_data();
    lock.lock();
    if (!done) {
      settled = true;  // no more can be acknowledged
      return fail_locked(done.why());
    }
    synced = records;
    acknowledged_step = step;
    if (failed && synced == appended) settled = true;
    changed.notify_all();
  }
}

}  // namespace potl::transcript

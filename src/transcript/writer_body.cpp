// SPDX-License-Identifier: Apache-2.0
#include "transcript/writer_body.hpp"

#include <algorithm>

namespace potl::transcript {

writer::body::body(const writer_options& given, const job& agreed, const signing_key& signer)
    : options(given), job_id(agreed.id()), key(signer) {
  options.queue_states = std::max(options.queue_states, 1u);
  options.hash_threads = std::max(options.hash_threads, 1u);
}

writer::body::~body() {
  // Whatever goes wrong here was not acknowledged.
  static_cast<void>(stop());
}

status writer::body::start(log_position where, file_handle lock) {
  directory_lock = std::move(lock);
  const std::string path = options.directory + "/" + std::string(log_name);
  result<append_file> first = append_file::open(path);
  if (!first) return first.why();
  result<append_file> second = append_file::open(path);
  if (!second) return second.why();
  log.emplace(std::move(*first));
  log_to_sync.emplace(std::move(*second));
  position = std::move(where);
  acknowledged_step = position.step;
  appended_step = position.step;
  appender = std::thread([this] { append_loop(); });
  syncer = std::thread([this] { sync_loop(); });
  return unit{};
}

status writer::body::failure() {
  const std::lock_guard lock(mutex);
  if (failed) return *failed;
  return unit{};
}

void writer::body::fail(error why) {
  const std::lock_guard lock(mutex);
  if (!failed) failed = std::move(why);
  queue.clear();
  states = 0;
  wake_all();
}

void writer::body::wake_all() {
  changed.notify_all();
  to_append.notify_all();
  to_sync.notify_all();
}

status writer::body::enqueue(record what, std::optional<state> after, bool checkpoint) {
  std::unique_lock lock(mutex);
  if (failed) return *failed;
  const bool holds_state = after.has_value();
  queue.push_back({std::move(what), std::move(after), checkpoint});
  ++enqueued;
  if (holds_state) ++states;
  to_append.notify_one();
  // The trainer will capture another one before it comes back.
  changed.wait(lock, [&] { return failed || states < options.queue_states; });
  if (failed) return *failed;
  return unit{};
}

status writer::body::flush() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return failed || synced == enqueued; });
  if (failed) return *failed;
  return unit{};
}

status writer::body::stop() {
  if (!appender.joinable()) return failure();
  const status flushed = flush();
  {
    const std::lock_guard lock(mutex);
    stopping = true;
    wake_all();
  }
  appender.join();
  syncer.join();
  directory_lock = file_handle();
  return flushed;
}

void writer::body::append_loop() {
  try {
    for (;;) {
      std::optional<item> next;
      {
        std::unique_lock lock(mutex);
        to_append.wait(lock, [&] { return stopping || !queue.empty(); });
        if (queue.empty()) return;
        next.emplace(std::move(queue.front()));
        queue.pop_front();
      }
      if (const status done = append(*next); !done) return fail(done.why());
    }
  } catch (const exception& thrown) {
    fail(thrown.details());
  } catch (const std::exception& thrown) {
    fail({errc::internal, std::string("recording: ") + thrown.what(), ""});
  }
}

status writer::body::append(item& next) {
  const bool holds_state = next.after.has_value();
  std::uint64_t step = 0;
  auto* one_step = std::get_if<step_record>(&next.what);
  if (one_step != nullptr) step = one_step->step;
  if (next.after) {
    const digest& whole = next.after->state_digest(options.hash_threads);
    if (one_step != nullptr) one_step->state = whole;
    if (auto* initial = std::get_if<initial_record>(&next.what)) initial->state = whole;
    position.state = whole;
    if (next.checkpoint) {
      if (status stored = store(next, step); !stored) return stored;
    }
    next.after.reset();
  }
  if (auto* close = std::get_if<close_record>(&next.what)) close->state = position.state;
  frame.clear();
  append_frame(next.what, position.chain, frame);
  if (status written = log->append(frame); !written) return written;
  const digest leaf = leaf_hash(bytes_view(frame).subspan(4, frame.size() - 4 - digest::size));
  const std::lock_guard lock(mutex);
  position.tree.append(leaf);
  ++appended;
  if (one_step != nullptr) appended_step = step;
  // Only now: a trainer whose record could not be written hears of it before its next step is over.
  if (holds_state && states != 0) --states;
  to_sync.notify_one();
  changed.notify_all();
  return unit{};
}

status writer::body::store(const item& next, std::uint64_t step) {
  return save_checkpoint(options.directory + "/" + checkpoint_entry(step, position.branch),
                         *next.after);
}

void writer::body::sync_loop() {
  for (;;) {
    std::uint64_t records = 0;
    std::uint64_t step = 0;
    {
      std::unique_lock lock(mutex);
      to_sync.wait(lock, [&] { return stopping || appended != synced; });
      if (appended == synced) return;
      records = appended;
      step = appended_step;
    }
    // Everything appended meanwhile waits for the next round: records are committed in groups.
    if (const status done = log_to_sync->sync_data(); !done) return fail(done.why());
    const std::lock_guard lock(mutex);
    synced = records;
    acknowledged_step = step;
    changed.notify_all();
  }
}

}  // namespace potl::transcript

// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/writer.hpp>

#include <filesystem>
#include <set>

#include <potl/core/detail/utf8.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/transcript/commitment.hpp>

#include "core/file_system.hpp"
#include "transcript/history.hpp"
#include "transcript/writer_body.hpp"

namespace potl::transcript {
namespace {

// Larger than a header and a part of the next record.
constexpr std::uint64_t max_unused_bytes = 4 * std::uint64_t{max_record_bytes};

// Whether the log of a directory has no more than that. Of a larger one nothing is read: it may
// have records of millions of steps.
result<bool> is_unused(const std::string& directory) {
  const auto log = read_entry(directory, log_name, max_unused_bytes);
  if (!log && log.why().code == errc::limit) return false;
  if (!log) return log.why();
  const result<history> run = read_history(*log);
  return run && !run->initial && run->tail != log_tail::damage;
}

// Files that a killed process was writing.
bool is_left_over(std::string_view name) { return name.starts_with('.') && name.ends_with(".tmp"); }

// A crash before the first state leaves a job and perhaps a header: nothing that would be lost.
status require_unused(const std::string& directory, const job& agreed) {
  const result<bool> found = holds_run(directory);
  if (!found) return found.why();
  if (*found) return usage(directory + " holds a run already", "resume it, or choose another");
  const auto text = read_entry(directory, job_name, std::uint64_t{16} << 20);
  if (!text) return text.why().code == errc::missing ? status(unit{}) : status(text.why());
  if (!std::equal(text->begin(), text->end(), agreed.text.begin(), agreed.text.end(),
                  [](std::uint8_t a, char b) { return a == static_cast<std::uint8_t>(b); })) {
    return usage(directory + " belongs to another job", "choose another directory");
  }
  return unit{};
}

result<digest> telemetry_digest(const std::string& directory) {
  const auto bytes = read_entry(directory, telemetry_name, max_telemetry_bytes);
  if (bytes) return sha256_of(*bytes);
  if (bytes.why().code == errc::missing) return digest{};
  return bytes.why();
}

}  // namespace

std::string limited_software(const std::string& text) {
  return text.size() <= max_software_bytes && is_utf8(text) ? text : "";
}

result<bool> holds_run(const std::string& directory) {
  // What a crash before the first record can leave behind, and a key that was made for the run.
  static const std::set<std::string_view> known{key_name, job_name, checkpoint_folder,
                                                rounding_folder, telemetry_name};
  constexpr auto remedy = "record into a directory of its own";
  std::error_code failed;
  const std::filesystem::file_status kind = std::filesystem::status(directory, failed);
  if (kind.type() == std::filesystem::file_type::not_found) return false;
  if (kind.type() == std::filesystem::file_type::none) {
    return detail::system_error_of(failed.value(), "read", directory);
  }
  if (!std::filesystem::is_directory(kind)) return usage(directory + " is not a directory", remedy);
  std::string other;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at(directory, failed); !failed && at != end;
       at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (name == log_name) {
      // Killed before it had a state, it is begun anew.
      const result<bool> unused = is_unused(directory);
      if (!unused) return unused.why();
      if (!*unused) return true;
    } else if (!known.contains(name) && !is_left_over(name)) {
      other = name;
    }
  }
  if (failed) return detail::system_error_of(failed.value(), "read", directory);
  if (!other.empty()) {
    return usage(directory + " holds " + other + ", which is no file of a run", remedy);
  }
  return false;
}

writer::writer(std::unique_ptr<body> content) : body_(std::move(content)) {}
writer::writer(writer&&) noexcept = default;
writer& writer::operator=(writer&& other) noexcept {
  std::swap(body_, other.body_);
  return *this;
}
writer::~writer() {
  if (body_ && !body_->home.is_here()) static_cast<void>(body_.release());
}

result<writer> writer::create(const writer_options& options, const job& agreed,
                              const signing_key& key) {
  if (limited_software(options.software) != options.software) {
    return usage("software must be UTF-8 of at most 1024 bytes", "");
  }
  if (status made = create_directory(options.directory); !made) return made.why();
  result<directory_lock> lock = lock_run(options.directory);
  if (!lock) return lock.why();
  if (status unused = require_unused(options.directory, agreed); !unused) return unused.why();
  const std::string base = options.directory + "/";
  if (status made = create_directory(base + std::string(checkpoint_folder)); !made)
    return made.why();
  if (status stored =
          write_file_atomically(base + std::string(job_name), as_bytes_view(agreed.text));
      !stored) {
    return stored.why();
  }
  auto content = std::make_unique<body>(options, agreed, key);
  log_position start;
  start.chain = log_chain_start();
  std::vector<std::uint8_t> log = log_header();
  const std::size_t payload = log.size() + 4;
  append_frame(header_record{content->job_id, digest{key.verifier().raw()}, options.software},
               start.chain, log);
  start.tree.append(
      leaf_hash(bytes_view(log).subspan(payload, log.size() - payload - digest::size)));
  if (status stored = write_file_atomically(base + std::string(log_name), log); !stored) {
    return stored.why();
  }
  if (status started = content->start(std::move(start), std::move(*lock)); !started)
    return started.why();
  return writer(std::move(content));
}

status writer::append_initial(state before) {
  if (body_->ended) return usage("the recording has ended", "");
  if (body_->position.has_initial) return usage("the initial state is recorded already", "");
  body_->position.has_initial = true;
  return body_->enqueue(initial_record{body_->job_id, {}}, std::move(before), true);
}

status writer::append_step(state after, const step_entry& entry) {
  return body_->append_step(std::move(after), entry);
}

status writer::append_step(const digest& after, const step_entry& entry) {
  if (entry.checkpoint) return usage("a checkpoint needs the state itself", "");
  return body_->append_step(after, entry);
}

status writer::body::append_step(recorded_state after, const step_entry& entry) {
  // The first error is what the trainer must hear, whatever it does next.
  if (status before = failure(); !before) return before;
  if (ended) return usage("the recording has ended", "");
  if (!position.has_initial) return usage("the initial state comes first", "append_initial");
  if (entry.step != position.step + 1) {
    return usage("step " + std::to_string(entry.step) + " does not follow step " +
                     std::to_string(position.step),
                 "");
  }
  if (entry.rates.size() > max_rates) return usage("too many parameter groups", "");
  if (entry.rounding_log.size() > max_rounding_log_bytes) {
    return usage("the rounding log of a step has more than " +
                     std::to_string(max_rounding_log_bytes) + " bytes",
                 "take smaller steps, or another arithmetic");
  }
  if ((entry.flags & ~training_step_flags) != 0) return usage("unknown step flags", "");
  step_record out;
  out.job_id = job_id;
  out.step = entry.step;
  out.epoch = entry.epoch;
  out.sample_ids = digest_of_ids(entry.sample_ids);
  out.loss = entry.loss;
  out.rates.assign(entry.rates.begin(), entry.rates.end());
  out.random_draws = entry.random_draws;
  out.flags = entry.flags;
  if (entry.checkpoint) out.flags |= static_cast<std::uint32_t>(step_flag::checkpoint);
  if (position.resumed) out.flags |= static_cast<std::uint32_t>(step_flag::resumed);
  out.duration_ns = entry.duration_ns;
  position.resumed = false;
  position.step = entry.step;
  return enqueue(std::move(out), std::move(after), entry.checkpoint,
                 {entry.rounding_log.begin(), entry.rounding_log.end()});
}

std::uint64_t writer::acknowledged() const {
  if (!body_->home.is_here()) return body_->acknowledged_step;
  const std::lock_guard lock(body_->mutex);
  return body_->acknowledged_step;
}

status writer::flush() { return body_->flush(); }

result<std::string> writer::publish() {
  if (body_->ended) return usage("the recording has ended", "commit_run signs a closed run");
  if (status flushed = body_->flush(); !flushed) return flushed.why();
  const std::lock_guard lock(body_->mutex);
  return sign_run_note(body_->job_id, body_->position.tree.size(), body_->position.tree.root(),
                       std::nullopt, body_->key);
}

status writer::close() {
  if (body_->ended) return usage("the recording has ended", "");
  if (!body_->position.has_initial) return usage("the initial state comes first", "append_initial");
  if (status flushed = body_->flush(); !flushed) return flushed;
  const result<digest> telemetry = telemetry_digest(body_->options.directory);
  if (!telemetry) return telemetry.why();
  if (status queued = body_->enqueue(
          close_record{body_->job_id, body_->position.step, {}, *telemetry}, {}, false);
      !queued) {
    return queued;
  }
  body_->ended = true;
  return body_->stop();
}

status writer::abandon() {
  body_->ended = true;
  return body_->stop();
}

}  // namespace potl::transcript

// SPDX-License-Identifier: Apache-2.0
#include <potl/core/file.hpp>
#include <potl/transcript/writer.hpp>

#include "transcript/directory_lock.hpp"
#include "transcript/history.hpp"
#include "transcript/writer_body.hpp"

namespace potl::transcript {
namespace {

constexpr std::uint64_t max_own_checkpoint_bytes = std::uint64_t{1} << 42;

struct restart {
  std::uint64_t step = 0;
  std::optional<state> at;
};

error usage(const std::string& message, const std::string& remedy) {
  return {errc::usage, message, remedy};
}

// Whether the run may be gone on with, by this key, for this job.
status check(const history& run, const digest& job_id, const signing_key& key) {
  if (run.tail == log_tail::damage) {
    return error{errc::malformed, "the log is damaged: " + run.tail_problem,
                 "restore transcript.log from a copy; nothing was changed"};
  }
  if (!run.header || run.header->job_id != job_id) {
    return usage("the directory holds a run of another job", "choose another directory");
  }
  if (digest{key.verifier().raw()} != run.header->trainer) {
    return usage("the key is not the one that recorded the run", "resume with the first key");
  }
  if (run.close) return usage("the run is closed", "commit to it, or record another one");
  if (!run.initial) {
    return error{errc::missing, "the run holds no state yet", "record it from the start"};
  }
  if (run.anomaly_count != 0) {
    return error{errc::malformed, "the log contradicts itself: " + run.anomalies.front().reason,
                 "nothing was changed"};
  }
  return unit{};
}

// The newest stored checkpoint that hashes to its leaf. One that does not is skipped: the steps
// after an older one can be done again, and stay on record. A read error is not skipped.
result<restart> newest_checkpoint(const std::string& directory, const history& run) {
  constexpr auto stored = static_cast<std::uint32_t>(step_flag::checkpoint);
  for (std::size_t i = run.steps.size() + 1; i-- > 0;) {
    if (i != 0 && (run.steps[i - 1].flags & stored) == 0) continue;
    const std::uint64_t step = i == 0 ? 0 : run.steps[i - 1].step;
    const digest& expected = i == 0 ? run.initial->state : run.steps[i - 1].state;
    const std::string entry = checkpoint_entry(step, i == 0 ? 0 : run.branches[i - 1]);
    auto file = read_entry(directory, entry, max_own_checkpoint_bytes);
    if (!file && file.why().code == errc::io) return file.why();
    if (!file) continue;
    result<state> got = parse_checkpoint(std::move(*file), &expected);
    if (got) return restart{step, std::move(*got)};
  }
  return error{errc::missing, "no stored checkpoint hashes to its record",
               "restore checkpoints/ from a copy"};
}

status drop_tail(const std::string& directory, const history& run) {
  if (run.tail == log_tail::clean) return unit{};
  result<append_file> log = append_file::open(directory + "/" + std::string(log_name));
  if (!log) return log.why();
  if (status cut = log->truncate(run.bytes); !cut) return cut;
  return log->sync_data();
}

log_position position_of(const history& run, bytes_view log) {
  log_position out;
  out.chain = run.chain;
  out.has_initial = true;
  out.branch = run.resumes.size();
  // The frontier is rebuilt from the verified prefix.
  result<log_reader> reader = log_reader::open(log);
  while (reader->next()) out.tree.append(leaf_hash(reader->payload()));
  return out;
}

}  // namespace

result<writer::resumed> writer::resume(const writer_options& options, const job& agreed,
                                       const signing_key& key) {
  result<file_handle> lock = lock_directory(options.directory);
  if (!lock) return lock.why();
  const auto log = read_entry(options.directory, log_name, max_log_bytes);
  if (!log) return log.why();
  const result<history> run = read_history(*log);
  if (!run) return run.why();
  auto content = std::make_unique<body>(options, agreed, key);
  if (status fit = check(*run, content->job_id, key); !fit) return fit.why();
  result<restart> from = newest_checkpoint(options.directory, *run);
  if (!from) return from.why();
  if (status dropped = drop_tail(options.directory, *run); !dropped) return dropped.why();

  log_position position = position_of(*run, *log);
  position.step = from->step;
  position.state = *run->state_at(from->step);
  position.resumed = true;
  position.branch += 1;
  resume_record mark;
  mark.job_id = content->job_id;
  mark.from_step = from->step;
  mark.last_step = run->last_step();
  mark.number = position.branch;
  mark.log_size = run->records;
  mark.log_root = run->root;
  mark.state = position.state;
  mark.signature = key.sign(resume_message(mark));
  if (status started = content->start(std::move(position), std::move(*lock)); !started)
    return started.why();
  if (status queued = content->enqueue(mark, std::nullopt, false); !queued) return queued.why();
  if (status flushed = content->flush(); !flushed) return flushed.why();
  return resumed{writer(std::move(content)), from->step, std::move(*from->at)};
}

}  // namespace potl::transcript

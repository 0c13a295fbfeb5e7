// SPDX-License-Identifier: Apache-2.0
#include <potl/core/file.hpp>
#include <potl/numeric/rounding_log.hpp>
#include <potl/transcript/writer.hpp>

#include "core/counted.hpp"
#include "transcript/history.hpp"
#include "transcript/writer_body.hpp"

namespace potl::transcript {
namespace {

constexpr std::uint64_t max_own_checkpoint_bytes = std::uint64_t{1} << 42;

struct restart {
  std::uint64_t step = 0;
  std::optional<state> at;
  std::shared_ptr<const checkpoint_base> base;  // none where step 0 cannot be read
};

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
  if (run.close) {
    return usage("the directory holds a run that has ended",
                 "commit to it, or choose another directory to record again");
  }
  if (!run.initial) {
    return error{errc::missing, "the run holds no state yet", "record it from the start"};
  }
  if (run.anomaly_count != 0) {
    return error{errc::malformed, "the log contradicts itself: " + run.anomalies.front().reason,
                 "nothing was changed"};
  }
  return unit{};
}

result<std::shared_ptr<const checkpoint_base>> initial_state(const std::string& directory,
                                                             const history& run) {
  auto file = read_entry(directory, checkpoint_entry(0, 0), max_own_checkpoint_bytes);
  if (!file) return file.why();
  result<state> got = parse_checkpoint(std::move(*file), &run.initial->state);
  if (!got) return got.why();
  return std::make_shared<const checkpoint_base>(checkpoint_base::to_read(std::move(*got)));
}

// The newest stored checkpoint that hashes to its leaf. One that does not is skipped: the steps
// after an older one can be done again, and stay on record. A read error is not skipped.
result<restart> newest_checkpoint(const std::string& directory, const history& run) {
  const auto base = initial_state(directory, run);
  if (!base && base.why().code == errc::io) return base.why();
  for (std::size_t i = run.steps.size() + 1; i-- > 0;) {
    if (i != 0 && !has(run.steps[i - 1].flags, step_flag::checkpoint)) continue;
    const std::uint64_t step = i == 0 ? 0 : run.steps[i - 1].step;
    const digest& expected = i == 0 ? run.initial->state : run.steps[i - 1].state;
    const std::string entry = checkpoint_entry(step, i == 0 ? 0 : run.branches[i - 1]);
    auto file = read_entry(directory, entry, max_own_checkpoint_bytes);
    if (!file && file.why().code == errc::io) return file.why();
    if (!file) continue;
    result<state> got = parse_checkpoint(std::move(*file), &expected, [&] { return base; });
    if (got) return restart{step, std::move(*got), base ? *base : nullptr};
  }
  return error{errc::missing, "no stored checkpoint hashes to its record",
               "restore checkpoints/ from a copy"};
}

// What a verifier would reject in the end is not trained on for days.
status within_limits(const history& run, const job& agreed, std::uint64_t from) {
  const auto refused = [](const std::string& allowed, const std::string& more) {
    return usage("the job allows " + allowed + ", and to resume would make it " + more,
                 "record it again in another directory; where trainings are interrupted often, "
                 "agree on a larger max_resumes");
  };
  const std::size_t resumes = run.resumes.size() + 1;
  if (resumes > agreed.max_resumes) {
    return refused(counted(agreed.max_resumes, "resume"), std::to_string(resumes));
  }
  const std::uint64_t superseded = run.superseded.size() + (run.last_step() - from);
  if (superseded > agreed.max_superseded) {
    return refused(counted(agreed.max_superseded, "superseded step"), std::to_string(superseded));
  }
  return unit{};
}

bool is_anchor(const record& what) {
  const auto* one_step = std::get_if<step_record>(&what);
  return one_step == nullptr || has(one_step->flags, step_flag::checkpoint);
}

// What the records up to here say of a branch's rounding logs has to be there: a verifier rejects a
// run without them, however well it goes on. What the resume follows is then on the disk, too.
status require_rounding_logs(const std::string& directory, std::uint64_t branch,
                             std::uint64_t bytes) {
  if (bytes == 0) return unit{};
  const std::string path = directory + "/" + rounding_entry(branch);
  result<append_file> file = append_file::open(path);
  if (!file) return file.why();
  if (file->size() >= bytes) return file->sync_data();
  return error{errc::missing,
               path + " ends before the rounding logs that the records of its branch name",
               "restore it from a copy, or record again in another directory"};
}

// Bytes of the log up to the first record whose rounding log is not there. A power cut can take
// logs whose records it leaves; such a record was not acknowledged, and goes like a torn one. Logs
// up to a checkpoint, or a resume, were on the disk before it.
result<std::uint64_t> with_rounding_logs(const std::string& directory, bytes_view log) {
  std::uint64_t anchor = 0;
  result<log_reader> first = log_reader::open(log);
  if (!first) return first.why();
  while (const auto next = first->next()) {
    if (is_anchor(*next)) anchor = first->position();
  }
  std::uint64_t branch = 0, offset = 0, before = 0;
  const auto until = [&](std::uint64_t position) -> result<std::uint64_t> {
    if (status there = require_rounding_logs(directory, branch, offset); !there) return there.why();
    return position;
  };
  result<log_reader> reader = log_reader::open(log);
  for (;; before = reader->position()) {
    const std::optional<record> next = reader->next();
    if (!next) return until(reader->position());
    if (std::holds_alternative<resume_record>(*next)) {
      if (const auto there = until(before); !there) return there;
      ++branch, offset = 0;
    }
    const auto* one_step = std::get_if<step_record>(&*next);
    if (one_step == nullptr || !one_step->rounding) continue;
    const rounding_reference& bound = *one_step->rounding;
    if (reader->position() > anchor) {
      const auto bytes = read_entry_part(directory, rounding_entry(branch), offset, bound.bytes);
      if (!bytes && bytes.why().code == errc::io) return bytes.why();
      if (!bytes || numeric::rounding_log_digest(*bytes) != bound.content) return until(before);
    }
    offset += bound.bytes;
  }
}

status drop_tail(const std::string& directory, const history& run, std::uint64_t size) {
  if (run.bytes == size) return unit{};
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
  result<directory_lock> lock = lock_run(options.directory);
  if (!lock) return lock.why();
  auto log = read_entry(options.directory, log_name, max_log_bytes);
  if (!log) return log.why();
  const std::uint64_t size = log->size();
  result<history> run = read_history(*log);
  if (!run) return run.why();
  auto content = std::make_unique<body>(options, agreed, key);
  if (status fit = check(*run, content->job_id, key); !fit) return fit.why();
  const result<std::uint64_t> kept = with_rounding_logs(options.directory, *log);
  if (!kept) return kept.why();
  if (*kept < run->bytes) {
    log->resize(static_cast<std::size_t>(*kept));
    run = read_history(*log);
  }
  result<restart> from = newest_checkpoint(options.directory, *run);
  if (!from) return from.why();
  if (!options.past_limits) {
    if (status kept_to = within_limits(*run, agreed, from->step); !kept_to) return kept_to.why();
  }
  if (status dropped = drop_tail(options.directory, *run, size); !dropped) return dropped.why();

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
  content->base = from->base ? std::optional(from->base->without_bytes()) : std::nullopt;
  if (status started = content->start(std::move(position), std::move(*lock)); !started)
    return started.why();
  if (status queued = content->enqueue(mark, {}, false); !queued) return queued.why();
  if (status flushed = content->flush(); !flushed) return flushed.why();
  return resumed{writer(std::move(content)), from->step, std::move(*from->at)};
}

}  // namespace potl::transcript

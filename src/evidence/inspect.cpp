// SPDX-License-Identifier: Apache-2.0
#include <potl/evidence/detail/inspect.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <potl/core/file.hpp>
#include <potl/transcript/job.hpp>

#include "transcript/history.hpp"

namespace potl::transcript {
namespace {

constexpr std::size_t max_losses = 512;
constexpr std::size_t max_unused = 1000;
std::optional<std::uint64_t> size_of(const std::string& path) {
  std::error_code failed;
  const auto about = std::filesystem::symlink_status(path, failed);
  if (failed || about.type() != std::filesystem::file_type::regular) return std::nullopt;
  const auto size = std::filesystem::file_size(path, failed);
  return failed ? std::nullopt : std::optional<std::uint64_t>(size);
}

void add_checkpoint(const std::string& directory, std::uint64_t step, std::uint64_t branch,
                    run_facts& out) {
  const std::string name = checkpoint_entry(step, branch);
  const auto bytes = size_of(directory + "/" + name);
  if (!bytes) return;
  out.checkpoints.push_back({name, step, branch, *bytes});
  out.checkpoint_bytes += *bytes;
}

void add_checkpoints(const std::string& directory, const history& run, const result<job>& agreed,
                     run_facts& out) {
  if (run.initial) add_checkpoint(directory, 0, 0, out);
  const bool derivable = agreed && agreed->store_every != 0;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const bool derived = derivable && agreed->is_boundary(run.steps[i].step);
    if (derived || has(run.steps[i].flags, step_flag::checkpoint)) {
      add_checkpoint(directory, run.steps[i].step, run.branches[i], out);
    }
  }
  for (std::size_t i = 0; i < run.superseded.size(); ++i) {
    if (has(run.superseded[i].flags, step_flag::checkpoint)) {
      add_checkpoint(directory, run.superseded[i].step, run.superseded_branches[i], out);
    }
  }
  std::sort(out.checkpoints.begin(), out.checkpoints.end(),
            [](const stored_file& a, const stored_file& b) {
              return std::pair(a.step, a.branch) < std::pair(b.step, b.branch);
            });
}

// What a crash left: a temporary file, or a checkpoint whose record was not written any more.
void add_unused(const std::string& directory, run_facts& out) {
  std::set<std::string> used;
  for (const stored_file& one : out.checkpoints) used.insert(one.name);
  std::error_code failed;
  const std::string folder(checkpoint_folder);
  std::filesystem::directory_iterator entries(directory + "/" + folder, failed);
  for (const std::filesystem::directory_iterator end; !failed && entries != end;
       entries.increment(failed)) {
    const std::string file = entries->path().filename().string();
    const std::string name = folder + "/" + file;
    const bool ours = file.rfind("step-", 0) == 0 || file.rfind(".step-", 0) == 0;
    if (ours && safe_entry_name(file) && !used.contains(name) && out.unused.size() < max_unused) {
      out.unused.push_back(name);
    }
  }
  std::sort(out.unused.begin(), out.unused.end());
}

void add_rounding(const std::string& directory, const history& run, run_facts& out) {
  for (const auto* list : {&run.steps, &run.superseded}) {
    for (const step_record& one : *list) {
      if (one.rounding) ++out.rounding_logs;
    }
  }
  for (std::uint64_t branch = 0; branch < run.rounding_bytes.size(); ++branch) {
    const std::uint64_t wanted = run.rounding_bytes[branch];
    if (wanted == 0) continue;
    out.rounding_bytes += wanted;
    const std::string name = rounding_entry(branch);
    const std::uint64_t there = size_of(directory + "/" + name).value_or(0);
    if (there >= wanted) continue;
    out.damage.push_back(name + " has " + std::to_string(there) + " bytes of " +
                         std::to_string(wanted) + " that the log names");
  }
}

void add_losses(const history& run, run_facts& out) {
  const std::size_t count = std::min(run.steps.size(), max_losses);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = i * run.steps.size() / count;
    const std::size_t end = (i + 1) * run.steps.size() / count;
    double mean = 0;
    for (std::size_t at = begin; at < end; ++at) {
      mean += run.steps[at].loss / static_cast<double>(end - begin);
    }
    out.losses.push_back(std::isfinite(mean) ? std::optional<double>(mean) : std::nullopt);
  }
}

void add_gaps(const history& run, const job& agreed, run_facts& out) {
  std::uint64_t before = 0;
  for (const stored_file& one : out.checkpoints) {
    const digest* effective = run.state_at(one.step);
    if (effective == nullptr || effective != run.state_in(one.step, one.branch)) continue;
    if (!agreed.fills_gap(one.step, run.last_step())) continue;
    if (one.step - before > agreed.max_gap()) out.gaps.push_back({before, one.step});
    before = one.step;
  }
  const bool open_end = run.last_step() - before > agreed.max_gap();
  if (open_end || (run.close && before != run.last_step())) {
    out.gaps.push_back({before, run.last_step()});
  }
}

}  // namespace

result<run_facts> inspect_run(const std::string& directory) {
  const auto log = read_entry(directory, log_name, max_unagreed_log_bytes);
  if (!log) return unread_without_job(log.why());
  const result<history> run = read_history(*log);
  if (!run) return run.why();
  run_facts out;
  out.log_bytes = log->size();
  out.records = run->records;
  out.root = run->root;
  out.steps = run->last_step();
  out.superseded_steps = run->superseded.size();
  out.closed = run->close.has_value();
  out.committed = size_of(directory + "/" + std::string(commitment_name)).has_value();
  out.telemetry_bytes = size_of(directory + "/" + std::string(telemetry_name)).value_or(0);
  for (const step_record& one : run->steps) {
    out.seconds += static_cast<double>(one.duration_ns) * 1e-9;
  }
  for (const resume_record& one : run->resumes)
    out.resumes.push_back({one.from_step, one.last_step});
  const auto text = read_entry(directory, job_name, max_job_bytes);
  const result<job> agreed = text ? parse_job(*text) : result<job>(text.why());
  add_checkpoints(directory, *run, agreed, out);
  add_unused(directory, out);
  add_rounding(directory, *run, out);
  add_losses(*run, out);

  if (run->tail == log_tail::damage) out.damage.push_back("the log: " + run->tail_problem);
  if (run->tail == log_tail::torn) {
    out.damage.push_back("the log breaks off in a record, as after a crash: " + run->tail_problem);
  }
  for (const anomaly& one : run->anomalies) out.damage.push_back(one.reason);
  if (run->header) {
    out.job_id = run->header->job_id;
    out.trainer = run->header->trainer;
    out.software = run->header->software;
  }
  if (!agreed) {
    out.damage.push_back(agreed.why().message);
  } else if (out.job_id && agreed->id() != *out.job_id) {
    out.damage.push_back("job.json is not the job of the log");
  } else {
    out.agreed_steps = agreed->steps;
    add_gaps(*run, *agreed, out);
  }
  return out;
}

}  // namespace potl::transcript

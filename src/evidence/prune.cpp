// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include <potl/core/file.hpp>
#include <potl/crypto/detail/signed_note.hpp>
#include <potl/evidence/detail/inspect.hpp>
#include <potl/transcript/job.hpp>

#include "core/counted.hpp"
#include "transcript/history.hpp"

namespace potl::transcript {
namespace {

struct run_to_prune {
  history run;
  job agreed;
  run_facts facts;
  std::uint64_t other_bytes = 0;          // everything but checkpoints
  std::vector<const stored_file*> steps;  // of the effective history, ascending
  std::set<std::string> required;         // names
};

result<run_to_prune> load(const std::string& directory) {
  result<run_facts> facts = inspect_run(directory);
  if (!facts) return facts.why();
  if (!facts->damage.empty()) {
    return error{errc::malformed, "the run is damaged: " + facts->damage.front(),
                 "nothing is removed from a damaged run"};
  }
  const auto log = read_entry(directory, log_name, max_log_bytes);
  if (!log) return log.why();
  result<history> run = read_history(*log);
  if (!run) return run.why();
  const auto text = read_entry(directory, job_name, max_job_bytes);
  if (!text) return text.why();
  result<job> agreed = parse_job(*text);
  if (!agreed) return agreed.why();
  run_to_prune out{std::move(*run), std::move(*agreed), std::move(*facts), 0, {}, {}};
  out.other_bytes =
      out.facts.log_bytes + out.facts.telemetry_bytes + out.facts.rounding_bytes + text->size();
  const auto note = read_entry(directory, commitment_name, note_limit_bytes);
  if (note) out.other_bytes += note->size();
  return out;
}

// The first, the last, and what superseded steps and resumes started from: always kept. And, unless
// the run is archived, the ends of the segments.
void find_required(run_to_prune& what, bool archived) {
  const history& run = what.run;
  for (const stored_file& one : what.facts.checkpoints) {
    const digest* effective = run.state_at(one.step);
    if (effective != nullptr && effective == run.state_in(one.step, one.branch)) {
      what.steps.push_back(&one);
      const bool needed = !archived && what.agreed.fills_gap(one.step, run.last_step());
      if (needed) what.required.insert(one.name);
    }
  }
  if (what.steps.empty()) return;
  what.required.insert(what.steps.front()->name);
  what.required.insert(what.steps.back()->name);
  for (const superseded_range& one : run.ranges) {
    what.required.insert(checkpoint_entry(one.from_step, one.start_branch));
  }
  for (const resume_record& one : run.resumes) {
    const std::optional<std::size_t> at = run.find(one.from_step);
    if (at) what.required.insert(checkpoint_entry(one.from_step, run.branches[*at]));
  }
}

// Keeps as few as possible without a distance above `segment`.
prune_plan keep_with(const run_to_prune& what, std::uint64_t segment) {
  prune_plan out;
  out.bytes = what.other_bytes;
  const stored_file* kept = nullptr;
  const auto keep = [&](const stored_file& one) {
    if (kept != nullptr) out.segment = std::max(out.segment, one.step - kept->step);
    out.keep.push_back(one.name);
    out.bytes += one.bytes;
    kept = &one;
  };
  for (std::size_t i = 0; i < what.steps.size(); ++i) {
    const stored_file& one = *what.steps[i];
    const bool last = i + 1 == what.steps.size();
    const bool needed = kept == nullptr || last || what.required.contains(one.name) ||
                        what.steps[i + 1]->step - kept->step > segment;
    if (needed) {
      keep(one);
    } else {
      out.remove.push_back(one.name);
    }
  }
  std::set<std::string> effective;
  for (const stored_file* one : what.steps) effective.insert(one->name);
  for (const stored_file& one : what.facts.checkpoints) {
    if (effective.contains(one.name)) continue;
    if (what.required.contains(one.name)) {
      out.keep.push_back(one.name);
      out.bytes += one.bytes;
    } else {
      out.remove.push_back(one.name);
    }
  }
  out.remove.insert(out.remove.end(), what.facts.unused.begin(), what.facts.unused.end());
  return out;
}

// The agreement cannot be changed any more; the next one can.
std::string remedy_for(const job& agreed, prune_depth depth) {
  if (depth == prune_depth::archive) return "the first, the last and resumed states always stay";
  const std::string longest = counted(agreed.max_gap(), "step");
  if (agreed.store_every != 0) {
    return "the job allows stored states to be at most " + longest + " apart (store_every)";
  }
  if (agreed.max_segment > agreed.checkpoint_every) {
    return "the job allows segments of at most " + longest + " (max_segment)";
  }
  return "the job allows segments of at most " + longest +
         ", the distance of its checkpoints, so that none may go: the next job can be made "
         "with a max_segment of several checkpoint_every, and this run can be archived";
}

// Nothing of the effective history goes: only what a crash left.
prune_plan keep_all(const run_to_prune& what) {
  prune_plan out = keep_with(what, 0);
  out.remove = what.facts.unused;
  out.keep.clear();
  out.bytes = what.other_bytes + what.facts.checkpoint_bytes;
  for (const stored_file& one : what.facts.checkpoints) out.keep.push_back(one.name);
  return out;
}

}  // namespace

result<prune_plan> plan_prune(const std::string& directory, std::uint64_t max_bytes,
                              prune_depth depth) {
  result<run_to_prune> loaded = load(directory);
  if (!loaded) return loaded.why();
  const bool archived = depth == prune_depth::archive;
  find_required(*loaded, archived);
  if (prune_plan all = keep_all(*loaded); all.bytes <= max_bytes) return all;
  const std::uint64_t longest = archived ? loaded->run.last_step() : loaded->agreed.max_gap();
  if (prune_plan least = keep_with(*loaded, longest); least.bytes > max_bytes) {
    return error{errc::usage,
                 "the run cannot be made smaller than " + std::to_string(least.bytes) + " bytes" +
                     (archived ? "" : " and stay verifiable"),
                 remedy_for(loaded->agreed, depth)};
  }
  // The shortest segments that fit. Longer ones never need more files.
  std::uint64_t low = 0;
  std::uint64_t high = longest;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (keep_with(*loaded, middle).bytes <= max_bytes) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return keep_with(*loaded, high);
}

}  // namespace potl::transcript

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <filesystem>

#include <potl/core/file.hpp>
#include <potl/crypto/hasher.hpp>

#include "core/counted.hpp"
#include "evidence/audit.hpp"

namespace potl::transcript {
namespace {

constexpr std::string_view segments_rule = "agreed.segments";

enum class presence { there, missing, link, unknown };

presence look(const std::string& path, std::uint64_t& bytes) {
  std::error_code failed;
  const std::filesystem::file_status about = std::filesystem::symlink_status(path, failed);
  if (about.type() == std::filesystem::file_type::not_found) return presence::missing;
  if (failed) return presence::unknown;
  if (about.type() == std::filesystem::file_type::symlink) return presence::link;
  // A directory is not a checkpoint; a read would refuse it.
  if (about.type() != std::filesystem::file_type::regular) return presence::missing;
  bytes = std::filesystem::file_size(path, failed);
  return failed ? presence::unknown : presence::there;
}

struct stored_checkpoints {
  std::vector<checkpoint_info> there;
  std::vector<std::uint64_t> missing_starts;
  bool readable = true;
  std::string link;  ///< the first that is one; empty: none is

  bool keep(presence found, const std::string& path) {
    if (found == presence::unknown) readable = false;
    if (found == presence::link && link.empty()) link = path;
    return found == presence::there;
  }
};

// Whether the states are there from which superseded steps can be done again.
void look_at_starts(const std::string& directory, const history& run, stored_checkpoints& out) {
  for (const superseded_range& one : run.ranges) {
    std::uint64_t ignored = 0;
    const std::string path = directory + "/" + checkpoint_entry(one.from_step, one.start_branch);
    const presence found = look(path, ignored);
    if (!out.keep(found, path) && found == presence::missing) {
      out.missing_starts.push_back(one.from_step);
    }
  }
}

stored_checkpoints find_checkpoints(const std::string& directory, const history& run,
                                    const job& agreed) {
  stored_checkpoints out;
  const std::string folder = directory + "/" + std::string(checkpoint_folder);
  std::error_code ignored;
  if (std::filesystem::is_symlink(std::filesystem::symlink_status(folder, ignored))) {
    out.link = folder;
    return out;
  }
  look_at_starts(directory, run, out);
  const auto add = [&](std::uint64_t step, std::uint64_t branch, const digest& state) {
    checkpoint_info info{step, branch, state, 0};
    const std::string path = directory + "/" + checkpoint_entry(step, branch);
    if (out.keep(look(path, info.file_bytes), path)) out.there.push_back(info);
  };
  if (run.initial) add(0, 0, run.initial->state);
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const step_record& one = run.steps[i];
    const bool stored = has(one.flags, step_flag::checkpoint);
    // Beside what was stored while recording: what was derived since.
    const bool derivable = agreed.store_every != 0 && agreed.is_boundary(one.step);
    if (stored || derivable) add(one.step, run.branches[i], one.state);
  }
  return out;
}

// The step of "step-N.safetensors" or "step-N.bM.safetensors"; nothing for another name.
std::optional<std::uint64_t> step_of(std::string_view name) {
  constexpr std::string_view head = "step-", tail = ".safetensors";
  if (!name.starts_with(head) || !name.ends_with(tail)) return std::nullopt;
  std::uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + head.size(), end, step);
  const std::string_view rest(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
  if (parsed.ec != std::errc() || !(rest == tail || rest.starts_with(".b"))) return std::nullopt;
  return step;
}

// Nothing reads such a file: looking for it ends where no honest folder does.
void look_for_strays(const std::string& directory, const audit_input& in, audit_log& log) {
  std::uint64_t left = 1024 + 2 * (in.run.steps.size() + in.run.superseded.size());
  std::error_code failed;
  std::filesystem::directory_iterator at(directory + "/" + std::string(checkpoint_folder), failed);
  for (; !failed && at != std::filesystem::directory_iterator() && left-- > 0;
       at.increment(failed)) {
    const std::string name = at->path().filename().string();
    const std::optional<std::uint64_t> step = step_of(name);
    if (!step || in.agreed.is_boundary(*step) || in.agreed.is_checkpoint(*step)) continue;
    log.reject(segments_rule,
               "the state file " + name + " belongs to no step at which one is agreed", *step);
  }
}

// A line has about 90 bytes, and there are ten a second: steps of 36 s are read in full. It decides
// nothing (soundness.md rule 11), so that what is larger is left alone.
std::uint64_t telemetry_limit(const job& agreed) {
  constexpr std::uint64_t most = std::uint64_t{64} << 20, least = std::uint64_t{8} << 20;
  return std::min(most, least + (std::min(agreed.steps, most) << 15));
}

}  // namespace

void audit_segments(const std::string& directory, const audit_input& in, audit_log& log) {
  for (const auto* list : {&in.run.steps, &in.run.superseded}) {
    for (const step_record& one : *list) {
      const bool stored = has(one.flags, step_flag::checkpoint);
      if (stored == in.agreed.is_checkpoint(one.step)) continue;
      log.reject(segments_rule,
                 "step " + std::to_string(one.step) +
                     (stored ? " is recorded with a state, where none is agreed"
                             : " is recorded without the state that is agreed there"),
                 one.step);
    }
  }
  look_for_strays(directory, in, log);
  log.pass(segments_rule, "the run has the agreed " + counted(in.agreed.segments(), "segment") +
                              " of " + counted(in.agreed.segment_steps(), "step") +
                              ", and no others");
}

result<std::vector<checkpoint_info>> audit_checkpoints(const std::string& directory,
                                                       const audit_input& in, audit_log& log) {
  constexpr std::string_view rule = "transcript.withheld";
  stored_checkpoints stored = find_checkpoints(directory, in.run, in.agreed);
  if (!stored.link.empty()) {
    return error{errc::malformed, stored.link + " is a symbolic link",
                 "links in a run directory are not followed: put what it leads to in its place"};
  }
  if (!stored.readable) {
    log.inconclusive(rule, "checkpoints cannot be looked up: the system refuses it");
    return std::move(stored.there);
  }
  const auto missing = [&](const std::string& reason, std::uint64_t step) {
    log.reject(rule, reason, step);
  };
  if (stored.there.empty() || stored.there.front().step != 0) {
    missing("the checkpoint of step 0 is not there", 0);
  }
  for (const std::uint64_t step : stored.missing_starts) {
    missing("the checkpoint of step " + std::to_string(step) +
                ", from which superseded steps started, is not there",
            step);
  }
  std::uint64_t before = 0;
  const std::string longest = counted(in.agreed.max_gap(), "step");
  const auto check_gap = [&](std::uint64_t step) {
    if (step - before > in.agreed.max_gap()) {
      missing("no checkpoint between steps " + std::to_string(before) + " and " +
                  std::to_string(step) + "; they may be at most " + longest + " apart",
              step);
    }
    before = step;
  };
  const std::uint64_t last = in.run.last_step();
  for (const checkpoint_info& one : stored.there) {
    if (in.agreed.fills_gap(one.step, last)) check_gap(one.step);
  }
  if (in.run.close && before != last) {
    missing("the checkpoint of the last step, " + std::to_string(last) + ", is not there", last);
  }
  log.pass(rule, "no checkpoint is missing: there are " + std::to_string(stored.there.size()) +
                     ", at most " + longest + " apart");
  return std::move(stored.there);
}

result<std::vector<std::uint8_t>> audit_telemetry(const run_files& files, const audit_input& in,
                                                  audit_log& log) {
  std::vector<std::uint8_t> none;
  if (!in.run.close) return none;
  const digest& bound = in.run.close->telemetry;
  result<std::vector<std::uint8_t>> file =
      files.read(std::string(telemetry_name), telemetry_limit(in.agreed));
  if (bound == digest{}) {
    if (file) log.note("telemetry.log is not bound by the close record: it is ignored");
    return none;
  }
  if (file) {
    if (sha256_of(*file) == bound) return std::move(*file);
    log.reject("transcript.chain", "telemetry.log is not the one that the close record binds");
  } else if (file.why().code == errc::io) {
    log.inconclusive("transcript.withheld", file.why().message);
  } else if (file.why().code == errc::limit) {
    log.note("telemetry.log is larger than what is read for this job: " + file.why().message);
  } else if (file.why().code == errc::malformed) {
    return file.why();  // a link: who made it is not known
  } else {
    log.reject("transcript.withheld", "telemetry.log, which the close record binds, is not there");
  }
  return none;
}

}  // namespace potl::transcript

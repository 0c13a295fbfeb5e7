// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/commitment.hpp>

#include <potl/core/file.hpp>

#include "transcript/history.hpp"

namespace potl::transcript {
namespace {

constexpr std::string_view origin_prefix = "potl/v1/";
constexpr std::string_view open_line = "open";
constexpr std::string_view final_prefix = "final ";

error malformed(const std::string& why) { return {errc::malformed, "note: " + why, ""}; }

result<history> closed_history(const std::string& directory) {
  const auto log = read_entry(directory, log_name, max_log_bytes);
  if (!log) return log.why();
  result<history> out = read_history(*log);
  if (!out) return out;
  if (out->tail != log_tail::clean || out->anomaly_count != 0) {
    const std::string why =
        out->anomaly_count != 0 ? out->anomalies.front().reason : out->tail_problem;
    return error{errc::malformed, "the log is damaged: " + why, "`potl inspect` shows more"};
  }
  if (!out->close) {
    return error{errc::usage, "the run is not finished",
                 "record with the same arguments again, which resumes it; for fewer steps agree on "
                 "another job, with max_steps"};
  }
  return out;
}

}  // namespace

std::string note_origin(const digest& job_id) { return std::string(origin_prefix) + job_id.hex(); }

result<std::string> sign_run_note(const digest& job_id, std::uint64_t size, const digest& root,
                                  const std::optional<digest>& final_state,
                                  const signing_key& key) {
  checkpoint_note note{note_origin(job_id), size, root, {}};
  note.extensions.push_back(final_state ? std::string(final_prefix) + final_state->hex()
                                        : std::string(open_line));
  return sign_note(note, key);
}

result<run_note> parse_run_note(std::string_view text) {
  result<signed_note> note = parse_note(as_bytes_view(text));
  if (!note) return note.why();
  run_note out;
  const checkpoint_note& signed_part = note->note;
  if (signed_part.origin.rfind(origin_prefix, 0) != 0) return malformed("not of a run");
  const result<digest> job_id =
      digest::from_hex(std::string_view(signed_part.origin).substr(origin_prefix.size()));
  if (!job_id) return malformed("its origin does not name a job");
  out.job_id = *job_id;
  if (signed_part.extensions.size() != 1) return malformed("one extension line is expected");
  const std::string_view line = signed_part.extensions.front();
  if (line != open_line) {
    if (line.rfind(final_prefix, 0) != 0) return malformed("unknown extension line");
    const result<digest> state = digest::from_hex(line.substr(final_prefix.size()));
    if (!state) return malformed("its final state is not a digest");
    out.final_state = *state;
  }
  out.note = std::move(*note);
  return out;
}

result<std::string> commit_run(const std::string& directory, const signing_key& key) {
  const result<history> run = closed_history(directory);
  if (!run) return run.why();
  const auto& raw = key.verifier().raw();
  if (digest{raw} != run->header->trainer) {
    return error{errc::usage, "the key is not the one that recorded the run",
                 "commit with the key given to the recorder"};
  }
  result<std::string> text =
      sign_run_note(run->header->job_id, run->records, run->root, run->close->state, key);
  if (!text) return text;
  const auto before = read_entry(directory, commitment_name, note_limit_bytes);
  if (before) {
    // Ed25519 is deterministic: equal contents have equal signatures.
    if (std::string(before->begin(), before->end()) == *text) return text;
    return error{errc::usage, "the run has another commitment already",
                 "two commitments for one job are a reason to reject both"};
  }
  if (before.why().code != errc::missing) return before.why();
  if (const status stored = write_file_atomically(directory + "/" + std::string(commitment_name),
                                                  as_bytes_view(*text));
      !stored) {
    return stored.why();
  }
  return text;
}

}  // namespace potl::transcript

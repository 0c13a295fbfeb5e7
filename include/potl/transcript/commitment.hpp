// SPDX-License-Identifier: Apache-2.0
// Commitments: signed notes (crypto/detail/signed_note.hpp) over a run's log. The origin names the
// job, so a note cannot be shown for another one; an extension line tells a commitment ("final
// <state digest>") from the note of a run that is still being recorded ("open").
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/detail/signed_note.hpp>
#include <potl/crypto/signature.hpp>

namespace potl::transcript {

/// "potl/v1/<job id>"
std::string note_origin(const digest& job_id);

/// A note over `size` records. With `final_state` it is a commitment.
result<std::string> sign_run_note(const digest& job_id, std::uint64_t size, const digest& root,
                                  const std::optional<digest>& final_state, const signing_key& key);

/// A note of a run, parsed; its signature is not verified.
struct run_note {
  signed_note note;
  digest job_id;
  std::optional<digest> final_state;  ///< present: a commitment
};
/// malformed or limit when the text is not a note of a run.
result<run_note> parse_run_note(std::string_view text);

/// Commits to a closed run: returns the note and stores it as <directory>/commitment. Repeated, it
/// returns the same note. usage when the run is not closed, when the key is not the run's, or when
/// another commitment is there already: two commitments for one job are a reason to reject both.
result<std::string> commit_run(const std::string& directory, const signing_key& key);

}  // namespace potl::transcript

// SPDX-License-Identifier: Apache-2.0
// Evidence that an auditor repeated the steps, and did not copy their digests: after each step a
// code of what the step changed, under a nonce of the client's (docs/format/audit_work.md).
//
// Claims: a code that the client finds again was made by somebody who knew the nonce and the bytes
// of `work_chunks` chunks after that step. Digests, of which a trainer publishes many, do not help:
// the codes are keyed. A step's chunks depend on the whole state before it, so that bytes which
// nobody gave away take all steps since the last state that somebody did.
// Assumes a fresh nonce, which the trainer does not know.
// Cannot detect: who did the work, a trainer who gives bytes away, and steps that change nothing.
// Cost of a code: one pass over the chunks that did not change, and HMAC over at most 256 KiB.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/detail/signed_note.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/transcript/state.hpp>

namespace potl::transcript {

/// At most so many chunks of 16 KiB make a code.
inline constexpr std::uint64_t work_chunks = 16;

/// What of the nonce is not a secret.
digest work_nonce_hash(const digest& nonce);

/// The code of one step.
struct work_code {
  digest code;
  std::uint64_t changed = 0;  ///< chunks that the step changed: 0 says nothing
};

/// Of a step, from the states before and after it. Chunks are compared within a tensor's path; one
/// that was not there before, or had another size, has changed as a whole.
work_code code_of_work(const digest& nonce, const digest& job_id, std::uint64_t step,
                       const state& before, const state& after);

/// The beginning of the file that holds the codes of steps 1, 2, ..., 32 bytes each.
std::vector<std::uint8_t> work_file_header(const digest& job_id, const digest& nonce);
inline constexpr std::uint64_t work_header_bytes = 16 + 2 * digest::size;

/// The codes of a file. malformed: it is none, or ends within a code; mismatch: of another job or
/// nonce; limit: of more steps than `max_steps`.
result<std::vector<digest>> read_work_file(bytes_view file, const digest& job_id,
                                           const digest& nonce, std::uint64_t max_steps);

/// RFC 6962 root over the codes.
digest work_root(const std::vector<digest>& codes);

/// What an auditor signs of its codes.
struct work_note {
  signed_note note;  ///< its size and root are those of the codes
  digest job_id;
  digest nonce_hash;
  std::optional<digest> commitment;  ///< SHA-256 of the trainer's, if the auditor had it
};
result<std::string> sign_work_note(const digest& job_id, const digest& nonce,
                                   const std::optional<digest>& commitment,
                                   const std::vector<digest>& codes, const signing_key& key);
/// malformed or limit when the text is not such a note. Its signature is not verified.
result<work_note> parse_work_note(std::string_view text);

/// ok: `key` signed exactly these codes for this job and nonce. missing or mismatch otherwise.
status verify_work_note(const work_note& note, const digest& job_id, const digest& nonce,
                        const std::vector<digest>& codes, const public_key& key);

}  // namespace potl::transcript

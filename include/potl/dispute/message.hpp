// SPDX-License-Identifier: Apache-2.0
// What the parties of a dispute say: signed canonical JSON.
//
// Claims: a message that parse_message gives and `is_from` believes was signed by that party, for
// this job, both commitments, this parent, bisection and index. There is one spelling of it. An
// opening that fits binds its leaf to the number of that leaf and to both claims around it.
// Cost: an Ed25519 signature; of an opening at most 128 hashes.
// Cannot detect: whether a leaf says what the agreed program computes. The referee decides that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/merkle.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/dispute/game.hpp>
#include <potl/transcript/commitment.hpp>
#include <potl/transcript/detail/record.hpp>

namespace potl::dispute {

/// The most bytes of an operator's leaf.
inline constexpr std::size_t max_leaf_bytes = std::size_t{1} << 20;
/// The most bytes that a referee may ask a party for.
inline constexpr std::size_t max_answer_bytes = std::size_t{16} << 20;

/// A record of the party's own log, which its commitment holds.
struct committed_record {
  std::uint64_t index = 0;           ///< of the record in the log
  std::vector<std::uint8_t> record;  ///< docs/format/transcript.md
  merkle_proof proof;
  friend bool operator==(const committed_record&, const committed_record&) = default;
};

/// The digest at an index. Between steps the record of that step binds it.
struct claim {
  digest value;
  std::optional<committed_record> record;
  friend bool operator==(const claim&, const claim&) = default;
};

/// The leaf between two neighbours, and what makes it a leaf: its inclusion proof in the tree that
/// ends with it.
struct opening {
  std::vector<std::uint8_t> leaf;
  merkle_proof proof;
  friend bool operator==(const opening&, const opening&) = default;
};

/// What the referee asked for. The referee reads it.
struct answer {
  std::vector<std::uint8_t> bytes;
  friend bool operator==(const answer&, const answer&) = default;
};

/// One message of a party.
struct message {
  party from = party::trainer;
  run_names run;
  digest parent;  ///< proceedings::parent()
  std::uint64_t level = 0;
  std::uint64_t index = 0;
  std::variant<claim, opening, answer> content;  ///< in the order of `act`
  signature_bytes signature{};

  place where() const noexcept { return {level, index, static_cast<act>(content.index())}; }
  /// What the rules of the game compare.
  move as_move() const;
  /// Whether the holder of the key signed it.
  bool is_from(const public_key& key) const;
  friend bool operator==(const message&, const message&) = default;
};

/// The text of a message with this key's signature.
std::string sign_message(const message& what, const signing_key& key);
/// The text of a message, its signature as it is.
std::string format_message(const message& what);
/// Strict inverse of format_message: malformed, or limit beyond max_bytes. The signature is not
/// verified.
result<message> parse_message(bytes_view text, std::size_t max_bytes);

/// The most bytes of a message. `asked`: how many the referee has asked for; 0 if it has not.
std::size_t message_limit(std::size_t asked) noexcept;

/// The root of the tree that ends with leaf `index`: malformed when the proof does not fit it.
result<digest> root_after(std::uint64_t index, const opening& shown);
/// ok: the first `index` leaves have the root `before`, and with this leaf they have `after`.
status verify_opening(std::uint64_t index, const opening& shown, const digest& before,
                      const digest& after);
/// ok: the record is one of `step` of the job, holds the claim, and lies under the commitment.
status verify_step_claim(const claim& one, std::uint64_t step, const transcript::run_note& note);
/// What the last record of a step of a run says of its rounding log; nothing where it has none.
/// `shown`: that record, then all records of resumes after it. mismatch, malformed: something is
/// not under the commitment, of another job or step, or a resume was left out. `steps` of the job.
/// Assumes a log whose records follow each other as they should.
result<std::optional<transcript::rounding_reference>> last_rounding(
    const std::vector<committed_record>& shown, std::uint64_t step, std::uint64_t steps,
    const transcript::run_note& note);

}  // namespace potl::dispute

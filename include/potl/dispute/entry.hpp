// SPDX-License-Identifier: Apache-2.0
// The lines of a dispute's transcript: what the referee wrote down, in order, and signed.
//
// Claims: a line that parse_entry gives and `is_from` believes was signed by the referee, behind
// the line whose SHA-256 it names. There is one spelling of it.
// Cannot detect: a time that the referee made up. It signs for the times, and the parties' next
// messages sign for the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/dispute/game.hpp>

namespace potl::dispute {

/// The first line: what is disputed, and how long a party may take.
struct terms {
  digest job;
  both<std::string> commitments;  ///< signed notes
  std::uint64_t turn_ms = 0;
  friend bool operator==(const terms&, const terms&) = default;
};

/// What a party sent in its turn, as it came.
struct received {
  party from = party::trainer;
  std::vector<std::uint8_t> text;
  friend bool operator==(const received&, const received&) = default;
};

/// A party sent more bytes than a message can have. They are not kept.
struct oversized {
  party from = party::trainer;
  std::uint64_t bytes = 0;
  friend bool operator==(const oversized&, const oversized&) = default;
};

/// The time of the party whose turn it was is over.
struct silence {
  friend bool operator==(const silence&, const silence&) = default;
};

/// The referee was away.
struct restarted {
  friend bool operator==(const restarted&, const restarted&) = default;
};

/// The next bisection, inside what both opened.
struct inner_bisection {
  level_kind kind = level_kind::operators;
  std::uint64_t size = 0;     ///< leaves
  std::uint64_t subject = 0;  ///< of chunks: which result of the operator; else 0
  std::uint64_t bytes = 0;    ///< of chunks: of that result; else 0
  /// The roots that the opened leaves name. Zeros inside a step: there the openings give them.
  both<digest> claimed;
  friend bool operator==(const inner_bisection&, const inner_bisection&) = default;
};

/// What the referee asks both for, to be answered with at most so many bytes.
struct question {
  std::vector<std::uint8_t> text;
  std::uint64_t max_bytes = 0;
  friend bool operator==(const question&, const question&) = default;
};

/// The end, as far as the referee decides it, and what it saw.
struct ruling {
  both<bool> wrong;
  reason why = reason::referee;
  std::vector<std::uint8_t> evidence;
  friend bool operator==(const ruling&, const ruling&) = default;
};

/// One line.
struct entry {
  std::uint64_t at = 0;  ///< milliseconds; when it arrived, or was decided
  digest previous;       ///< SHA-256 of the line before, without newline; zeros in the first
  std::variant<terms, received, oversized, silence, restarted, inner_bisection, question, ruling>
      what;
  signature_bytes signature{};

  /// Whether the holder of the key signed it.
  bool is_from(const public_key& key) const;
  friend bool operator==(const entry&, const entry&) = default;
};

/// The most bytes of a question, and of a ruling's evidence.
inline constexpr std::size_t max_decision_bytes = std::size_t{1} << 20;
/// The most bytes of a line.
std::size_t line_limit() noexcept;

/// The text of an entry with this key's signature, without a newline.
std::string sign_entry(const entry& what, const signing_key& key);
/// The text of an entry, its signature as it is.
std::string format_entry(const entry& what);
/// Strict inverse of format_entry; malformed or limit otherwise. The signature is not verified.
result<entry> parse_entry(bytes_view line);

}  // namespace potl::dispute

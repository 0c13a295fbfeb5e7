// SPDX-License-Identifier: Apache-2.0
// Signed notes that hold a checkpoint of a log: the text form of transparency logs (C2SP
// signed-note v1 and tlog-checkpoint v1), so that existing tools can read and witness them.
//
//   potl/v1/<job id>                  origin
//   1207                              leaves
//   <base64 of the 32-byte root>      root
//   <extension lines, each not empty>
//                                     an empty line ends what is signed
//   (U+2014) <key name> <base64 of 4-byte key hash || signature>
//
// Claims: a note that verifies was signed by the key for exactly this origin, size, root and
// extensions. Parsing accepts one form only: formatting what was parsed gives the same bytes.
// Narrower than C2SP: the text is printable ASCII, keys are Ed25519. Bounded: 64 KiB, 16
// signatures. Signatures by other keys are kept and ignored, as C2SP demands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/signature.hpp>

namespace potl {

inline constexpr std::size_t note_limit_bytes = 64 * 1024;
inline constexpr std::size_t note_limit_signatures = 16;

/// What is signed.
struct checkpoint_note {
  std::string origin;
  std::uint64_t size = 0;
  digest root;
  std::vector<std::string> extensions;
  friend bool operator==(const checkpoint_note&, const checkpoint_note&) = default;
};

/// One signature line of a note.
struct note_signature {
  std::string key_name;
  std::array<std::uint8_t, 4> key_hash{};
  std::vector<std::uint8_t> signature;
  friend bool operator==(const note_signature&, const note_signature&) = default;
};

/// A note as it is published.
struct signed_note {
  checkpoint_note note;
  std::vector<note_signature> signatures;  ///< at least one
  friend bool operator==(const signed_note&, const signed_note&) = default;
};

/// The signed text, up to and including the newline of its last line. usage when a field cannot be
/// written: an empty or unprintable line, an origin with more than one line.
result<std::string> note_text(const checkpoint_note& note);

/// The key hash that C2SP defines: SHA-256(name || newline || 0x01 || public key), first 4 bytes.
std::array<std::uint8_t, 4> note_key_hash(std::string_view key_name, const public_key& key);

/// The whole note. `key_name` is the origin when empty, and has no space and no plus sign.
result<std::string> sign_note(const checkpoint_note& note, const signing_key& key,
                              std::string_view key_name = {});

/// The bytes of a note.
result<std::string> format_note(const signed_note& note);

/// Strict inverse of format_note. malformed or limit otherwise; no signature is verified.
result<signed_note> parse_note(bytes_view bytes);

/// ok: `key`, under `key_name` (the origin when empty), signed the note. missing: there is no
/// signature by this name and key; mismatch: there is one that is wrong.
status verify_note(const signed_note& note, const public_key& key, std::string_view key_name = {});

}  // namespace potl

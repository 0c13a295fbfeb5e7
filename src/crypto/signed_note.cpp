// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/detail/signed_note.hpp>

#include <algorithm>
#include <charconv>
#include <utility>

#include <potl/crypto/hasher.hpp>

#include "base64.hpp"

namespace potl {
namespace {

// U+2014 in UTF-8, and a space.
constexpr std::string_view signature_mark = "\xe2\x80\x94 ";
constexpr std::uint8_t ed25519_type = 1;

bool is_line(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
}

bool is_key_name(std::string_view text) {
  return is_line(text) && text.find_first_of(" +") == std::string_view::npos;
}

error bad_field(const char* what) {
  return {errc::usage, std::string("a note cannot hold this ") + what, ""};
}
error malformed(std::string what) {
  return {errc::malformed, "this is not a signed note: " + std::move(what), ""};
}

/// Splits off the text before the next newline; false when there is none.
bool next_line(std::string_view& rest, std::string_view& line) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) return false;
  line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return true;
}

/// A decimal number without sign or leading zero.
bool parse_decimal(std::string_view text, std::uint64_t& value) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  return parsed.ec == std::errc{} && parsed.ptr == end && (text.size() == 1 || text[0] != '0');
}

result<checkpoint_note> parse_text(std::string_view text) {
  checkpoint_note note;
  std::string_view line;
  if (!next_line(text, line) || !is_line(line)) return malformed("no origin");
  note.origin = line;
  if (!next_line(text, line) || !parse_decimal(line, note.size)) return malformed("no size");
  if (!next_line(text, line)) return malformed("no root");
  const auto root = detail::from_base64(line);
  if (!root || root->size() != digest::size) return malformed("no root");
  std::copy(root->begin(), root->end(), note.root.bytes.begin());
  while (next_line(text, line)) {
    if (!is_line(line)) return malformed("an extension line that is not printable ASCII");
    note.extensions.emplace_back(line);
  }
  return note;
}

result<note_signature> parse_signature(std::string_view line) {
  const error bad = malformed("a bad signature line");
  if (!line.starts_with(signature_mark)) return bad;
  line.remove_prefix(signature_mark.size());
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return bad;
  note_signature out;
  out.key_name = line.substr(0, space);
  const auto bytes = detail::from_base64(line.substr(space + 1));
  // A hash without a signature behind it is not a signature.
  if (!is_key_name(out.key_name) || !bytes || bytes->size() <= out.key_hash.size()) return bad;
  const auto middle = bytes->begin() + static_cast<std::ptrdiff_t>(out.key_hash.size());
  std::copy(bytes->begin(), middle, out.key_hash.begin());
  out.signature.assign(middle, bytes->end());
  return out;
}

}  // namespace

result<std::string> note_text(const checkpoint_note& note) {
  if (!is_line(note.origin)) return bad_field("origin");
  std::string text =
      note.origin + "\n" + std::to_string(note.size) + "\n" + detail::to_base64(note.root) + "\n";
  for (const std::string& line : note.extensions) {
    if (!is_line(line)) return bad_field("extension line");
    text += line + "\n";
  }
  return text;
}

std::array<std::uint8_t, 4> note_key_hash(std::string_view key_name, const public_key& key) {
  const std::array<std::uint8_t, 2> separator{'\n', ed25519_type};
  const digest hash = sha256_of(as_bytes_view(key_name), separator, key.raw());
  std::array<std::uint8_t, 4> out{};
  std::copy_n(hash.bytes.begin(), out.size(), out.begin());
  return out;
}

result<std::string> sign_note(const checkpoint_note& note, const signing_key& key,
                              std::string_view key_name) {
  const auto text = note_text(note);
  if (!text) return text.why();
  const signature_bytes signature = key.sign(as_bytes_view(*text));
  const std::string name(key_name.empty() ? note.origin : key_name);
  return format_note(
      {note, {{name, note_key_hash(name, key.verifier()), {signature.begin(), signature.end()}}}});
}

result<std::string> format_note(const signed_note& note) {
  auto text = note_text(note.note);
  if (!text) return text.why();
  if (note.signatures.empty() || note.signatures.size() > note_limit_signatures) {
    return bad_field("number of signatures");
  }
  *text += "\n";
  for (const note_signature& one : note.signatures) {
    if (!is_key_name(one.key_name)) return bad_field("key name");
    if (one.signature.empty()) return bad_field("signature");
    std::vector<std::uint8_t> bytes(one.key_hash.begin(), one.key_hash.end());
    bytes.insert(bytes.end(), one.signature.begin(), one.signature.end());
    *text += std::string(signature_mark) + one.key_name + " " + detail::to_base64(bytes) + "\n";
  }
  if (text->size() > note_limit_bytes) return error{errc::limit, "a note has at most 64 KiB", ""};
  return text;
}

result<signed_note> parse_note(bytes_view bytes) {
  if (bytes.size() > note_limit_bytes) return error{errc::limit, "a note has at most 64 KiB", ""};
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // The last empty line separates text and signatures; an earlier one is refused as an extension.
  const std::size_t gap = all.rfind("\n\n");
  if (gap == std::string_view::npos) return malformed("no empty line before the signatures");
  auto note = parse_text(all.substr(0, gap + 1));
  if (!note) return note.why();
  signed_note out{std::move(*note), {}};
  std::string_view rest = all.substr(gap + 2);
  std::string_view line;
  while (next_line(rest, line)) {
    if (out.signatures.size() == note_limit_signatures) {
      return error{errc::limit, "a note has at most 16 signatures", ""};
    }
    auto signature = parse_signature(line);
    if (!signature) return signature.why();
    out.signatures.push_back(std::move(*signature));
  }
  if (!rest.empty()) return malformed("no newline at the end");
  if (out.signatures.empty()) return malformed("no signature");
  return out;
}

status verify_note(const signed_note& note, const public_key& key, std::string_view key_name) {
  const auto text = note_text(note.note);
  if (!text) return text.why();
  const std::string_view name = key_name.empty() ? std::string_view(note.note.origin) : key_name;
  const auto hash = note_key_hash(name, key);
  bool found = false;
  for (const note_signature& one : note.signatures) {
    if (one.key_name != name || one.key_hash != hash) continue;
    // Every signature that claims to be by this key must be: one good beside a bad one is refused.
    const status valid = key.verify(as_bytes_view(*text), one.signature);
    if (!valid) return valid.why();
    found = true;
  }
  if (found) return unit{};
  return error{errc::missing, "the note carries no signature by the key " + key.hex(), ""};
}

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
// How messages and the lines of a transcript spell what both hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <potl/crypto/hasher.hpp>
#include <potl/crypto/merkle.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/dispute/game.hpp>
#include <potl/encoding/json.hpp>

#include "crypto/base64.hpp"

namespace potl::dispute::wire {

inline error malformed(std::string why) { return {errc::malformed, std::move(why), ""}; }

inline json_value bytes(bytes_view what) { return potl::detail::to_base64(what); }

inline result<std::vector<std::uint8_t>> bytes(const json_cursor& at) {
  const auto text = at.string();
  if (!text) return text.why();
  auto out = potl::detail::from_base64(*text);
  if (!out) return malformed(at.path() + ": not base64");
  return out;
}

inline result<signature_bytes> signature(const json_cursor& at) {
  const auto raw = bytes(at);
  if (!raw) return raw.why();
  signature_bytes out{};
  if (raw->size() != out.size()) return malformed("a signature has 64 bytes");
  std::copy(raw->begin(), raw->end(), out.begin());
  return out;
}

inline json_value proof(proof_view what) {
  json_value::array out;
  for (const digest& one : what) out.emplace_back(one.hex());
  return out;
}

inline result<merkle_proof> proof(const json_cursor& at) {
  const auto size = at.size();
  if (!size) return size.why();
  if (*size > 64) return malformed(at.path() + ": longer than any proof");
  merkle_proof out;
  for (std::size_t i = 0; i < *size; ++i) {
    const auto one = at.at(i).digest();
    if (!one) return one.why();
    out.push_back(*one);
  }
  return out;
}

/// The value of an enumeration whose name the text is.
template <class Value>
result<Value> named(const json_cursor& at, std::initializer_list<Value> known) {
  const auto text = at.string();
  if (!text) return text.why();
  for (const Value one : known) {
    if (*text == to_string(one)) return one;
  }
  return malformed(at.path() + ": unknown \"" + *text + "\"");
}

inline result<party> side(const json_cursor& at) {
  return named(at, {party::trainer, party::auditor});
}

/// What a signature signs: the domain, a zero byte, and the text.
inline std::string signed_bytes(std::string_view domain, const json_value& body) {
  return std::string(domain) + '\0' + canonical_json(body);
}

/// The object without its signature.
inline std::string signed_text(json_value body, const signature_bytes& signature) {
  body.set("signature", bytes(signature));
  return canonical_json(body);
}

}  // namespace potl::dispute::wire

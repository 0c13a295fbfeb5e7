// SPDX-License-Identifier: Apache-2.0
#include <potl/core/finding.hpp>

#include <array>
#include <cstdio>

namespace potl {

std::string to_string(const fact& what) {
  if (const auto* text = std::get_if<std::string>(&what)) return *text;
  if (const auto* answer = std::get_if<bool>(&what)) return *answer ? "true" : "false";
  if (const auto* count = std::get_if<std::uint64_t>(&what)) return std::to_string(*count);
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.9g", std::get<double>(what));
  return buffer.data();
}

const char* to_string(outcome what) noexcept {
  switch (what) {
    case outcome::pass: return "pass";
    case outcome::reject: return "reject";
    case outcome::inconclusive: return "inconclusive";
    case outcome::note: return "note";
  }
  return "note";
}

const char* to_string(verdict what) noexcept {
  switch (what) {
    case verdict::accepted: return "accepted";
    case verdict::rejected: return "rejected";
    case verdict::inconclusive: return "inconclusive";
  }
  return "inconclusive";
}

}  // namespace potl

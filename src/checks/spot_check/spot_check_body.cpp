// SPDX-License-Identifier: Apache-2.0
#include "spot_check_body.hpp"

#include <bit>
#include <charconv>
#include <cstdint>
#include <string_view>

#include <potl/core/detail/utf8.hpp>
#include <potl/encoding/json.hpp>

namespace potl::checks {
namespace {

constexpr std::size_t reason_limit = 1000;

}  // namespace

std::string reason_body(const std::string& reason) {
  if (reason.empty()) return {};
  std::string safe;
  for (const char c : std::string_view(reason).substr(0, reason_limit)) {
    safe += c >= ' ' && c < 127 ? c : ' ';
  }
  return canonical_json(json_value::of({{"reason", safe}}));
}

result<std::string> read_reason(const std::string& body) {
  if (body.empty()) return std::string();
  const auto parsed = parse_json(as_bytes_view(body));
  if (!parsed) return parsed.why();
  const json_value* reason = parsed->find("reason");
  if (reason == nullptr) return std::string();
  if (reason->if_string() == nullptr) return error{errc::malformed, "a reason is not text", ""};
  std::string out;
  for (const char c : *reason->if_string()) out += c >= ' ' && c < 127 ? c : '?';
  return out.substr(0, reason_limit);
}

std::string pause_body() { return canonical_json(json_value::of({{"pause", true}})); }

bool is_pause(const std::string& body) { return body == pause_body(); }

std::string memory_body() { return canonical_json(json_value::of({{"memory", true}})); }

bool is_memory(const std::string& body) { return body == memory_body(); }

std::string loss_body(double loss) {
  return canonical_json(
      json_value::of({{"loss", json_value::decimal(std::bit_cast<std::uint64_t>(loss))}}));
}

result<double> read_loss(const std::string& body) {
  const error malformed{errc::malformed, "a report says no loss", ""};
  const auto parsed = parse_json(as_bytes_view(body));
  if (!parsed) return malformed;
  const json_value* loss = parsed->find("loss");
  const std::string* digits = loss == nullptr ? nullptr : loss->if_string();
  if (digits == nullptr) return malformed;
  std::uint64_t bits = 0;
  const char* const end = digits->data() + digits->size();
  const auto [used, code] = std::from_chars(digits->data(), end, bits);
  if (used != end || code != std::errc{}) return malformed;
  return std::bit_cast<double>(bits);
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
// The only file that includes the JSON library: its headers cost seconds per inclusion.
#include "encoding/json_events.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "encoding/json_source.hpp"

namespace potl::detail {
namespace {

using json = nlohmann::json;

// Counts what the handler is about to receive and translates numbers.
class bridge {
 public:
  bridge(const json_limits& limits, json_events& handler) : limits_(limits), handler_(handler) {}

  bool null() { return admit() && handler_.null(); }
  bool boolean(bool value) { return admit() && handler_.boolean(value); }
  bool number_integer(json::number_integer_t value) {
    // Only literals with a minus sign come here, -0 among them.
    return admit() && handler_.integer(true, 0 - static_cast<std::uint64_t>(value));
  }
  bool number_unsigned(json::number_unsigned_t value) {
    return admit() && handler_.integer(false, value);
  }
  bool number_float(json::number_float_t, const json::string_t& spelled) {
    if (!admit()) return false;
    // The tokenizer puts the locale's decimal point into its copy of the literal.
    std::string literal = spelled;
    std::replace_if(
        literal.begin(), literal.end(),
        [](char c) { return !(c >= '0' && c <= '9') && c != '-' && c != '+' && (c | 0x20) != 'e'; },
        '.');
    return handler_.number(literal);
  }
  bool string(json::string_t& value) { return admit() && fits(value) && handler_.string(value); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return admit() && enter() && handler_.start_object(); }
  bool key(json::string_t& value) { return fits(value) && handler_.name(value); }
  bool end_object() {
    --depth_;
    return handler_.end_object();
  }
  bool start_array(std::size_t) { return admit() && enter() && handler_.start_array(); }
  bool end_array() {
    --depth_;
    return handler_.end_array();
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) {
    handler_.reason = error{errc::malformed, "not a JSON text", ""};
    return false;
  }

 private:
  bool refuse(const char* what) {
    handler_.reason = error{errc::limit, what, ""};
    return false;
  }
  bool admit() { return ++nodes_ <= limits_.max_nodes || refuse("too many values"); }
  bool enter() { return ++depth_ <= limits_.max_depth || refuse("nested too deeply"); }
  bool fits(const std::string& text) {
    return text.size() <= limits_.max_string || refuse("a long string");
  }

  const json_limits& limits_;
  json_events& handler_;
  std::size_t nodes_ = 0;
  std::size_t depth_ = 0;
};

}  // namespace

status read_json_events(bytes_view text, const json_limits& limits, json_events& handler) {
  if (text.size() > limits.max_bytes) {
    return error{errc::limit,
                 "a JSON text of " + std::to_string(text.size()) + " bytes where at most " +
                     std::to_string(limits.max_bytes) + " are accepted",
                 ""};
  }
  // The tokenizer would skip a byte order mark, which RFC 8259 forbids to send.
  if (!text.empty() && text[0] == 0xEF) return error{errc::malformed, "a byte order mark", ""};

  json_source source(text, limits.max_string);
  bridge events(limits, handler);
  const bool complete = json::sax_parse(json_iterator(&source), json_iterator(nullptr), &events);
  if (source.failed()) return source.why();
  if (!complete) {
    error reason = handler.reason;
    reason.message = "JSON, byte " + std::to_string(source.position()) + ": " + reason.message;
    return reason;
  }
  return unit{};
}

}  // namespace potl::detail

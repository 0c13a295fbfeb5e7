// SPDX-License-Identifier: Apache-2.0
// The one door to the JSON tokenizer: strict texts as a stream of events, within limits that are
// enforced while reading. Both the document parser and the safetensors header reader stand on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <potl/encoding/json.hpp>

namespace potl::detail {

/// Receives a text's values in order. Each function returns true to go on, or false after it has
/// put the reason into `reason`. Texts are UTF-8; names come unchecked for repetition.
class json_events {
 public:
  virtual ~json_events() = default;
  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  /// An integer literal whose magnitude is below 2^64 (2^63 when negative).
  virtual bool integer(bool negative, std::uint64_t magnitude) = 0;
  /// Any other number, as it is spelled; a finite double when read as one.
  virtual bool number(std::string_view literal) = 0;
  virtual bool string(std::string& value) = 0;
  virtual bool start_object() = 0;
  virtual bool name(std::string& value) = 0;
  virtual bool end_object() = 0;
  virtual bool start_array() = 0;
  virtual bool end_array() = 0;

  error reason{errc::malformed, "", ""};
};

/// Reads one JSON text. Depth, values, string and text sizes are checked here, before the handler
/// sees a value.
status read_json_events(bytes_view text, const json_limits& limits, json_events& handler);

/// The longest literal that is accepted as a number.
inline constexpr std::size_t max_json_number = 128;
/// The longest run of white space, brackets and literals without any string or number.
inline constexpr std::size_t max_json_run = std::size_t{1} << 20;

/// Appends `text` as a JSON string in its RFC 8785 spelling. Precondition: UTF-8.
void append_json_string(std::string& out, std::string_view text);

/// Appends a finite double as ECMAScript spells it.
void append_json_number(std::string& out, double value);

/// Whether `a` comes before `b` when compared by UTF-16 code units. Precondition: UTF-8.
bool utf16_less(std::string_view a, std::string_view b) noexcept;

}  // namespace potl::detail

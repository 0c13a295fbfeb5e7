// SPDX-License-Identifier: Apache-2.0
// RFC 8785. Members are kept in its order already, so this only spells.
#include <potl/encoding/json.hpp>

#include "encoding/json_events.hpp"

namespace potl {
namespace detail {

void append_json_string(std::string& out, std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20) {
          out.append("\\u00").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
        } else {
          out += c;
        }
      }
    }
  }
  out += '"';
}

}  // namespace detail

namespace {

void append(std::string& out, const json_value& value) {
  switch (value.type()) {
    case json_value::kind::null: out += "null"; return;
    case json_value::kind::boolean: out += *value.if_boolean() ? "true" : "false"; return;
    case json_value::kind::integer: out += std::to_string(*value.if_integer()); return;
    case json_value::kind::number: detail::append_json_number(out, *value.if_number()); return;
    case json_value::kind::string: detail::append_json_string(out, *value.if_string()); return;
    case json_value::kind::array: {
      char separator = '[';
      for (const json_value& element : *value.if_array()) {
        out += separator;
        append(out, element);
        separator = ',';
      }
      out += separator == '[' ? "[]" : "]";
      return;
    }
    case json_value::kind::object: {
      char separator = '{';
      for (const json_member& member : *value.if_object()) {
        out += separator;
        detail::append_json_string(out, member.name);
        out += ':';
        append(out, member.value);
        separator = ',';
      }
      out += separator == '{' ? "{}" : "}";
      return;
    }
  }
}

}  // namespace

std::string canonical_json(const json_value& value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace potl

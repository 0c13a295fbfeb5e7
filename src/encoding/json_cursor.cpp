// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include <potl/encoding/json.hpp>

namespace potl {
namespace {

const char* name_of(json_value::kind kind) {
  switch (kind) {
    case json_value::kind::null: return "null";
    case json_value::kind::boolean: return "a boolean";
    case json_value::kind::integer: return "an integer";
    case json_value::kind::number: return "a number";
    case json_value::kind::string: return "a string";
    case json_value::kind::array: return "an array";
    case json_value::kind::object: return "an object";
  }
  return "nothing";
}

}  // namespace

json_cursor json_value::root() const& { return json_cursor(this); }

json_cursor json_value::at(std::string_view name) const& { return root().at(name); }

json_cursor json_cursor::at(std::string_view name) const {
  if (value_ == nullptr) return *this;
  std::string path = path_.empty() ? std::string(name) : path_ + "." + std::string(name);
  if (value_->if_object() == nullptr)
    return {nullptr, path_, std::string("expected an object, found ") + name_of(value_->type())};
  const json_value* found = value_->find(name);
  return {found, std::move(path), found == nullptr ? "is missing" : ""};
}

json_cursor json_cursor::at(std::size_t index) const {
  if (value_ == nullptr) return *this;
  const json_value::array* list = value_->if_array();
  if (list == nullptr)
    return {nullptr, path_, std::string("expected an array, found ") + name_of(value_->type())};
  std::string path = path_ + "[" + std::to_string(index) + "]";
  if (index >= list->size()) return {nullptr, std::move(path), "is missing"};
  return {&(*list)[index], std::move(path), ""};
}

error json_cursor::expected(std::string_view what) const {
  const std::string place = path_.empty() ? "the document" : path_;
  if (value_ == nullptr) return {errc::malformed, place + ": " + problem_, ""};
  return {errc::malformed,
          place + ": expected " + std::string(what) + ", found " + name_of(value_->type()), ""};
}

result<bool> json_cursor::boolean() const {
  const bool* value = value_ == nullptr ? nullptr : value_->if_boolean();
  if (value == nullptr) return expected("a boolean");
  return *value;
}

result<std::int64_t> json_cursor::integer() const {
  const std::int64_t* value = value_ == nullptr ? nullptr : value_->if_integer();
  if (value == nullptr) return expected("an integer");
  return *value;
}

result<std::uint64_t> json_cursor::count() const {
  const result<std::int64_t> value = integer();
  if (!value) return value.why();
  if (*value < 0) return error{errc::malformed, path_ + ": expected a count, found a negative", ""};
  return static_cast<std::uint64_t>(*value);
}

result<std::uint64_t> json_cursor::decimal() const {
  const std::string* text = value_ == nullptr ? nullptr : value_->if_string();
  if (text == nullptr) return expected("a string of decimal digits");
  std::uint64_t value = 0;
  const char* end = text->data() + text->size();
  const std::from_chars_result read = std::from_chars(text->data(), end, value);
  if (read.ec != std::errc{} || read.ptr != end || std::to_string(value) != *text)
    return error{errc::malformed, path_ + ": expected a 64-bit integer in decimal digits", ""};
  return value;
}

result<double> json_cursor::number() const {
  if (value_ != nullptr) {
    if (const double* value = value_->if_number()) return *value;
    if (const std::int64_t* value = value_->if_integer()) return static_cast<double>(*value);
  }
  return expected("a number");
}

result<std::string> json_cursor::string() const {
  const std::string* value = value_ == nullptr ? nullptr : value_->if_string();
  if (value == nullptr) return expected("a string");
  return *value;
}

result<potl::digest> json_cursor::digest() const {
  const std::string* value = value_ == nullptr ? nullptr : value_->if_string();
  if (value == nullptr) return expected("a digest");
  result<potl::digest> parsed = digest::from_hex(*value);
  if (!parsed) return error{errc::malformed, path_ + ": " + parsed.why().message, ""};
  return parsed;
}

result<std::size_t> json_cursor::size() const {
  const json_value::array* list = value_ == nullptr ? nullptr : value_->if_array();
  if (list == nullptr) return expected("an array");
  return list->size();
}

status json_cursor::only(std::initializer_list<std::string_view> names) const {
  const json_value::object* members = value_ == nullptr ? nullptr : value_->if_object();
  if (members == nullptr) return expected("an object");
  for (const json_member& member : *members) {
    if (std::find(names.begin(), names.end(), member.name) == names.end())
      return error{errc::malformed,
                   (path_.empty() ? "" : path_ + ": ") + "unknown member \"" +
                       member.name.substr(0, 64) + "\"",
                   ""};
  }
  return unit{};
}

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>

#include <potl/core/detail/utf8.hpp>
#include <potl/encoding/json.hpp>

#include "encoding/json_events.hpp"

namespace potl {
namespace {

[[noreturn]] void misuse(const char* what, const char* remedy) {
  throw exception(error{errc::usage, what, remedy});
}

struct by_name {
  bool operator()(const json_member& a, const json_member& b) const noexcept {
    return detail::utf16_less(a.name, b.name);
  }
  bool operator()(const json_member& a, std::string_view b) const noexcept {
    return detail::utf16_less(a.name, b);
  }
};

// Members are large; sorting pointers to them costs half the time for a hostile object.
void sort_by_name(json_value::object& members) {
  if (std::is_sorted(members.begin(), members.end(), by_name{})) return;
  std::vector<json_member*> order;
  order.reserve(members.size());
  for (json_member& member : members) order.push_back(&member);
  std::sort(order.begin(), order.end(),
            [](const json_member* a, const json_member* b) { return by_name{}(*a, *b); });
  json_value::object sorted;
  sorted.reserve(members.size());
  for (json_member* member : order) sorted.push_back(std::move(*member));
  members = std::move(sorted);
}

}  // namespace

namespace detail {

// Code units and UTF-8 bytes sort alike except that surrogates (U+10000 and above, lead bytes F0 to
// F4) come before U+E000..U+FFFF (lead bytes EE and EF).
bool utf16_less(std::string_view a, std::string_view b) noexcept {
  const auto [left, right] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (left == a.end() || right == b.end()) return left == a.end() && right != b.end();
  const auto rank = [](char c) {
    const int byte = static_cast<unsigned char>(c);
    return byte == 0xEE || byte == 0xEF ? byte + 0x100 : byte;
  };
  return rank(*left) < rank(*right);
}

}  // namespace detail

json_value::json_value() noexcept = default;
json_value::json_value(const json_value&) = default;
json_value::json_value(json_value&&) noexcept = default;
json_value& json_value::operator=(const json_value&) = default;
json_value& json_value::operator=(json_value&&) noexcept = default;
json_value::~json_value() = default;

json_value::json_value(std::nullptr_t) noexcept {}
json_value::json_value(bool value) noexcept : content_(value) {}
json_value::json_value(array value) : content_(std::move(value)) {}

json_value::json_value(double value) {
  if (!std::isfinite(value)) misuse("JSON has no NaN and no infinity", "write null or a string");
  if (std::trunc(value) == value && std::fabs(value) <= static_cast<double>(json_max_integer)) {
    content_ = static_cast<std::int64_t>(value);
  } else {
    content_ = value;
  }
}

json_value::json_value(std::string value) {
  if (!is_utf8(value)) misuse("JSON text must be UTF-8", "");
  content_ = std::move(value);
}

json_value::json_value(std::string_view value) : json_value(std::string(value)) {}

json_value::json_value(const char* value) : json_value(std::string(value)) {}

void json_value::refuse_integer() {
  misuse("JSON integers reach to 2^53-1 only", "write larger ones as decimal strings");
}

json_value json_value::decimal(std::uint64_t value) { return json_value(std::to_string(value)); }

result<json_value> json_value::from_members(object members) {
  for (const json_member& member : members) {
    if (!is_utf8(member.name)) return error{errc::malformed, "a name that is not UTF-8", ""};
  }
  sort_by_name(members);
  const auto twice = std::adjacent_find(
      members.begin(), members.end(),
      [](const json_member& a, const json_member& b) { return a.name == b.name; });
  if (twice != members.end())
    return error{errc::malformed, "the name \"" + twice->name.substr(0, 64) + "\" occurs twice",
                 ""};
  json_value out;
  out.content_ = std::move(members);
  return out;
}

json_value json_value::of(std::initializer_list<std::pair<std::string_view, json_value>> members) {
  object list;
  list.reserve(members.size());
  for (const auto& [name, value] : members) list.push_back({std::string(name), value});
  return from_members(std::move(list)).value();
}

const json_value* json_value::find(std::string_view name) const noexcept {
  const object* members = if_object();
  if (members == nullptr) return nullptr;
  const auto place = std::lower_bound(members->begin(), members->end(), name, by_name{});
  return place != members->end() && place->name == name ? &place->value : nullptr;
}

json_value& json_value::set(std::string_view name, json_value value) {
  if (type() == kind::null) content_ = object{};
  object* members = std::get_if<object>(&content_);
  if (members == nullptr) misuse("only an object has members", "");
  if (!is_utf8(name)) misuse("JSON text must be UTF-8", "");
  const auto place = std::lower_bound(members->begin(), members->end(), name, by_name{});
  if (place != members->end() && place->name == name) {
    place->value = std::move(value);
  } else {
    members->insert(place, {std::string(name), std::move(value)});
  }
  return *this;
}

bool operator==(const json_value& a, const json_value& b) { return a.content_ == b.content_; }

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/field.hpp>

#include <algorithm>
#include <cmath>

#include "checks/text.hpp"

namespace potl::checks::detail {
namespace {
status wrong() { return error{errc::usage, "wrong type", ""}; }

std::optional<double> as_number(const json_value& from) {
  if (const auto* whole = from.if_integer()) return static_cast<double>(*whole);
  if (const auto* number = from.if_number()) return *number;
  return std::nullopt;
}
}  // namespace

std::vector<std::string> split_choices(std::string_view choices) {
  std::vector<std::string> out;
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find(' '), choices.size());
    out.emplace_back(choices.substr(0, end));
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return out;
}

error unknown_field(std::string_view check, std::string_view name, std::string known) {
  return {errc::usage, std::string(check) + " has no option \"" + std::string(name) + "\"",
          "its options are " + std::move(known)};
}

error wrong_field(std::string_view check, const field_info& field, std::string_view problem) {
  std::string remedy = "it is of type " + field.type;
  if (field.low && field.high) {
    remedy += ", from " + text(*field.low) + " to " + text(*field.high);
  } else if (field.low) {
    remedy += ", at least " + text(*field.low);
  }
  for (std::size_t i = 0; i < field.choices.size(); ++i) {
    remedy += (i == 0 ? ", one of " : ", ") + field.choices[i];
  }
  return {errc::usage,
          std::string(check) + ": option \"" + field.name + "\" " + std::string(problem), remedy};
}

status read_value(const json_value& from, bool& to) {
  if (from.if_boolean() == nullptr) return wrong();
  to = *from.if_boolean();
  return unit{};
}

status read_value(const json_value& from, std::uint64_t& to) {
  if (from.if_integer() == nullptr) return wrong();
  // A negative number is caught as out of range: every integer field has a lower end.
  to = static_cast<std::uint64_t>(std::max<std::int64_t>(*from.if_integer(), 0));
  return unit{};
}

status read_value(const json_value& from, double& to) {
  const auto number = as_number(from);
  if (!number) return wrong();
  to = *number;
  return unit{};
}

status read_value(const json_value& from, std::optional<double>& to) {
  to.reset();
  if (from.type() == json_value::kind::null) return unit{};
  double number = 0;
  const status read = read_value(from, number);
  if (read) to = number;
  return read;
}

status read_value(const json_value& from, std::string& to) {
  if (from.if_string() == nullptr) return wrong();
  to = *from.if_string();
  return unit{};
}

status read_value(const json_value& from, std::vector<std::string>& to) {
  if (from.if_array() == nullptr) return wrong();
  to.clear();
  for (const json_value& item : *from.if_array()) {
    if (item.if_string() == nullptr) return wrong();
    to.push_back(*item.if_string());
  }
  return unit{};
}

std::string range_problem(const field_info& field, const json_value& value) {
  if (const auto number = as_number(value)) {
    if (field.low && *number < *field.low) return "is too small";
    if (field.high && *number > *field.high) return "is too large";
  }
  if (const auto* chosen = value.if_string(); chosen != nullptr && !field.choices.empty()) {
    const auto at = std::find(field.choices.begin(), field.choices.end(), *chosen);
    if (at == field.choices.end()) return "cannot be \"" + *chosen + "\"";
  }
  return "";
}

}  // namespace potl::checks::detail

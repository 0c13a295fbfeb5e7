// SPDX-License-Identifier: Apache-2.0
// One table per options struct: the Python classes, the command-line flags, the JSON form and the
// tables in docs/ are all made from it. The default is what the struct's own initialiser says.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <potl/core/result.hpp>
#include <potl/encoding/json.hpp>

namespace potl::checks {

inline constexpr double unbounded = std::numeric_limits<double>::max();

/// One row of a check's table of options: name, member, range and help.
template <class Options>
struct field {
  using member_pointer = std::variant<bool Options::*, std::uint64_t Options::*, double Options::*,
                                      std::optional<double> Options::*, std::string Options::*,
                                      std::vector<std::string> Options::*>;
  std::string_view name;
  member_pointer member;
  double low = -unbounded, high = unbounded;  ///< of numbers, both included
  std::string_view choices;                   ///< of strings, separated by spaces; empty: any
  std::string_view doc;
};

/// A row of a table without its type: what Python and docs/ see.
struct field_info {
  std::string name;
  std::string type;  ///< "boolean", "integer", "number", "optional number", "string", "strings"
  json_value value;  ///< the default
  std::optional<double> low, high;
  std::vector<std::string> choices;
  std::string doc;
};

namespace detail {

std::vector<std::string> split_choices(std::string_view choices);
error unknown_field(std::string_view check, std::string_view name, std::string known);
error wrong_field(std::string_view check, const field_info& field, std::string_view problem);

status read_value(const json_value& from, bool& to);
status read_value(const json_value& from, std::uint64_t& to);
status read_value(const json_value& from, double& to);
status read_value(const json_value& from, std::optional<double>& to);
status read_value(const json_value& from, std::string& to);
status read_value(const json_value& from, std::vector<std::string>& to);

template <class Value>
std::string_view type_name() {
  if constexpr (std::is_same_v<Value, bool>) return "boolean";
  if constexpr (std::is_same_v<Value, std::uint64_t>) return "integer";
  if constexpr (std::is_same_v<Value, double>) return "number";
  if constexpr (std::is_same_v<Value, std::optional<double>>) return "optional number";
  if constexpr (std::is_same_v<Value, std::string>) return "string";
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) return "strings";
}

inline json_value to_json(bool value) { return value; }
inline json_value to_json(std::uint64_t value) { return value; }
inline json_value to_json(double value) { return value; }
inline json_value to_json(const std::optional<double>& value) {
  return value ? json_value(*value) : json_value();
}
inline json_value to_json(const std::string& value) { return value; }
inline json_value to_json(const std::vector<std::string>& value) {
  return json_value::array(value.begin(), value.end());
}

/// What is wrong with a value that has the right type; empty: nothing.
std::string range_problem(const field_info& field, const json_value& value);

}  // namespace detail

/// The rows of a table, with the values of `options` (a default-constructed one: the defaults).
template <class Options>
std::vector<field_info> describe(std::span<const field<Options>> fields,
                                 const Options& options = {}) {
  std::vector<field_info> out;
  for (const field<Options>& row : fields) {
    field_info info;
    info.name = row.name;
    info.doc = row.doc;
    info.choices = detail::split_choices(row.choices);
    if (row.low != -unbounded) info.low = row.low;
    if (row.high != unbounded) info.high = row.high;
    std::visit(
        [&](auto member) {
          using value = std::remove_cvref_t<decltype(options.*member)>;
          info.type = detail::type_name<value>();
          info.value = detail::to_json(options.*member);
        },
        row.member);
    out.push_back(std::move(info));
  }
  return out;
}

/// Options from a JSON object (null: all defaults). usage: names an unknown field, a value of the
/// wrong type or out of range, and what would be right.
template <class Options>
result<Options> parse_options(std::string_view check, std::span<const field<Options>> fields,
                              const json_value& from) {
  Options out;
  if (from.type() == json_value::kind::null) return out;
  const json_value::object* members = from.if_object();
  if (members == nullptr) {
    return error{errc::usage, std::string(check) + ": options are not an object", ""};
  }
  const std::vector<field_info> rows = describe(fields);
  for (const json_member& member : *members) {
    std::size_t at = 0;
    while (at < fields.size() && fields[at].name != member.name) ++at;
    if (at == fields.size()) {
      std::string known;
      for (const field_info& row : rows) known += (known.empty() ? "" : ", ") + row.name;
      return detail::unknown_field(check, member.name, known);
    }
    const status read =
        std::visit([&](auto pointer) { return detail::read_value(member.value, out.*pointer); },
                   fields[at].member);
    if (!read) return detail::wrong_field(check, rows[at], "has the wrong type");
    const std::string problem = detail::range_problem(rows[at], member.value);
    if (!problem.empty()) return detail::wrong_field(check, rows[at], problem);
  }
  return out;
}

}  // namespace potl::checks

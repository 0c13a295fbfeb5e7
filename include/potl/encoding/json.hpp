// SPDX-License-Identifier: Apache-2.0
// JSON as jobs, leaves and reports use it: strict on the way in, one spelling on the way out.
//
// Claims: parse_json accepts RFC 8259 texts within I-JSON (RFC 7493) only: UTF-8, no duplicate
// names, no number that a double cannot carry, nothing after the value. canonical_json follows
// RFC 8785. What parse_json returns, canonical_json spells in the one way that parses back to the
// same value.
// Numbers: every number is an integer of at most 2^53-1 in magnitude or a finite double; a double
// with such an integral value *is* that integer (1.0 == 1). Integers beyond that range are refused;
// larger ones are written as decimal strings (json_value::decimal). The doubles between 2^53 and
// 1e21, which RFC 8785 spells without exponent, are read back only from exactly that spelling.
// Cost: linear in the text (n log n in the members of one object), memory bounded by json_limits;
// with the default limits a hostile text costs less than 64 MB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl {

struct json_member;
class json_cursor;

/// The largest integer that every JSON implementation carries exactly.
inline constexpr std::int64_t json_max_integer = (std::int64_t{1} << 53) - 1;

/// A JSON value. Immutable but for set(); always valid: text is UTF-8, numbers are in range, the
/// members of an object have unique names in the order of RFC 8785 (UTF-16 code units).
class json_value {
 public:
  using array = std::vector<json_value>;
  using object = std::vector<json_member>;
  enum class kind { null, boolean, integer, number, string, array, object };

  json_value() noexcept;
  // Out of line because json_member is incomplete here, and because g++ 12 warns of uninitialized
  // members that are not there when it inlines them.
  json_value(const json_value&);
  json_value(json_value&&) noexcept;
  json_value& operator=(const json_value&);
  json_value& operator=(json_value&&) noexcept;
  ~json_value();
  json_value(std::nullptr_t) noexcept;  // NOLINT: implicit by design
  json_value(bool value) noexcept;      // NOLINT
  json_value(double value);             // NOLINT: throws when not finite
  json_value(std::string value);        // NOLINT: throws when not UTF-8
  json_value(std::string_view value);   // NOLINT
  json_value(const char* value);        // NOLINT
  json_value(array value);              // NOLINT
  /// Throws potl::exception (usage) beyond +-(2^53-1): such integers are written with decimal().
  template <class Integer>
  requires(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>) json_value(Integer value)
      : content_(checked(value)) {}  // NOLINT

  /// A 64-bit integer as a string of decimal digits.
  static json_value decimal(std::uint64_t value);
  /// An object of these members, in any order; malformed if a name occurs twice or is not UTF-8.
  static result<json_value> from_members(object members);
  /// The same for members written in a program; throws where from_members would refuse.
  static json_value of(std::initializer_list<std::pair<std::string_view, json_value>> members);

  kind type() const noexcept { return static_cast<kind>(content_.index()); }
  const bool* if_boolean() const noexcept { return std::get_if<bool>(&content_); }
  const std::int64_t* if_integer() const noexcept { return std::get_if<std::int64_t>(&content_); }
  const double* if_number() const noexcept { return std::get_if<double>(&content_); }
  const std::string* if_string() const noexcept { return std::get_if<std::string>(&content_); }
  const array* if_array() const noexcept { return std::get_if<array>(&content_); }
  const object* if_object() const noexcept { return std::get_if<object>(&content_); }

  /// The member called `name`, or null when there is none or this is not an object.
  const json_value* find(std::string_view name) const noexcept;
  /// Adds or replaces a member. Precondition: an object, or null (which becomes an object).
  json_value& set(std::string_view name, json_value value);

  /// Checked access with the path in the error, e.g. doc.at("data").string("root").
  json_cursor root() const&;
  json_cursor root() && = delete;
  json_cursor at(std::string_view name) const&;
  json_cursor at(std::string_view name) && = delete;

  friend bool operator==(const json_value& a, const json_value& b);

 private:
  template <class Integer>
  static std::int64_t checked(Integer value) {
    if (!std::in_range<std::int64_t>(value)) refuse_integer();
    const auto wide = static_cast<std::int64_t>(value);
    if (wide > json_max_integer || wide < -json_max_integer) refuse_integer();
    return wide;
  }
  [[noreturn]] static void refuse_integer();

  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, array, object> content_;
};

/// A name of an object with its value.
struct json_member {
  std::string name;
  json_value value;
  friend bool operator==(const json_member&, const json_member&) = default;
};

/// A place in a document: either a value, or the reason why there is none. Follows a path without a
/// check at every step; the accessor at its end reports the first thing that was wrong. Refers to
/// the document, which must outlive it.
class json_cursor {
 public:
  json_cursor at(std::string_view name) const;
  json_cursor at(std::size_t index) const;

  result<bool> boolean() const;
  result<std::int64_t> integer() const;
  /// An integer from 0 to 2^53-1.
  result<std::uint64_t> count() const;
  /// A 64-bit integer spelled as a string of decimal digits (json_value::decimal).
  result<std::uint64_t> decimal() const;
  result<double> number() const;
  result<std::string> string() const;
  /// A digest spelled as 64 hexadecimal digits.
  result<potl::digest> digest() const;
  /// Number of elements of an array.
  result<std::size_t> size() const;
  /// Succeeds if this is an object with no member but the named ones.
  status only(std::initializer_list<std::string_view> names) const;

  result<bool> boolean(std::string_view name) const { return at(name).boolean(); }
  result<std::int64_t> integer(std::string_view name) const { return at(name).integer(); }
  result<std::uint64_t> count(std::string_view name) const { return at(name).count(); }
  result<std::uint64_t> decimal(std::string_view name) const { return at(name).decimal(); }
  result<double> number(std::string_view name) const { return at(name).number(); }
  result<std::string> string(std::string_view name) const { return at(name).string(); }
  result<potl::digest> digest(std::string_view name) const { return at(name).digest(); }

  /// The value itself, or null when the path led nowhere.
  const json_value* get() const noexcept { return value_; }
  /// Where this is, e.g. "data.roots[2]"; empty at the root.
  const std::string& path() const noexcept { return path_; }

 private:
  friend class json_value;
  explicit json_cursor(const json_value* value) : value_(value) {}
  json_cursor(const json_value* value, std::string path, std::string problem)
      : value_(value), path_(std::move(path)), problem_(std::move(problem)) {}
  error expected(std::string_view what) const;

  const json_value* value_ = nullptr;
  std::string path_;
  std::string problem_;
};

/// What a text may cost. The defaults keep a hostile text below 64 MB and about 100 ms.
struct json_limits {
  std::size_t max_bytes = std::size_t{8} << 20;
  std::size_t max_depth = 64;
  std::size_t max_nodes = std::size_t{1} << 18;     ///< values, containers included
  std::size_t max_string = std::size_t{256} << 10;  ///< bytes of one decoded string or name
};

/// Parses one JSON text: malformed or limit on anything but a strict text within the limits.
result<json_value> parse_json(bytes_view text, const json_limits& limits = {});

/// parse_json that also refuses every spelling but the canonical one.
result<json_value> parse_canonical_json(bytes_view text, const json_limits& limits = {});

/// The RFC 8785 text of `value`. Recurses as deep as the value is nested.
std::string canonical_json(const json_value& value);

/// Whether `text` is its own canonical form.
bool is_canonical(bytes_view text, const json_limits& limits = {});

}  // namespace potl

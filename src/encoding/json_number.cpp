// SPDX-License-Identifier: Apache-2.0
#include "encoding/json_number.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "encoding/json_events.hpp"

namespace potl::detail {

// ECMA-262, Number::toString: the shortest digits d1..dk that give back the same double (of these
// the closest, which std::to_chars guarantees), and where the decimal point goes among them.
void append_json_number(std::string& out, double value) {
  if (value == 0) {
    out += '0';
    return;
  }
  std::array<char, 32> buffer{};
  const std::to_chars_result end = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                                 std::fabs(value), std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t mark = text.find('e');
  std::string digits(1, text[0]);
  if (mark > 2) digits.append(text.substr(2, mark - 2));
  int exponent = 0;
  const char* first = text.data() + mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(first, end.ptr, exponent);

  const int count = static_cast<int>(digits.size());
  const int point = exponent + 1;  // digits before the decimal point
  if (std::signbit(value)) out += '-';
  if (point > 21 || point <= -6) {
    out += digits[0];
    if (count > 1) out.append(1, '.').append(digits, 1, std::string::npos);
    out += exponent < 0 ? "e-" : "e+";
    out += std::to_string(std::abs(exponent));
  } else if (point >= count) {
    out.append(digits).append(static_cast<std::size_t>(point - count), '0');
  } else if (point > 0) {
    out.append(digits, 0, static_cast<std::size_t>(point)).append(1, '.');
    out.append(digits, static_cast<std::size_t>(point), std::string::npos);
  } else {
    out.append("0.").append(static_cast<std::size_t>(-point), '0').append(digits);
  }
}

result<json_value> json_number_from(std::string_view literal) {
  double value = 0;
  const char* end = literal.data() + literal.size();
  const std::from_chars_result read = std::from_chars(literal.data(), end, value);
  if (read.ec != std::errc{} || read.ptr != end || !std::isfinite(value))
    return error{errc::malformed, "a number beyond the range of a double", ""};

  const std::size_t mark = literal.find_first_of("eE");
  const bool nonzero = literal.substr(0, mark).find_first_of("123456789") != std::string_view::npos;
  if (value == 0 && nonzero)
    return error{errc::malformed, "a number beyond the range of a double", ""};

  const bool whole = literal.find_first_of(".eE") == std::string_view::npos;
  if (whole && std::fabs(value) > static_cast<double>(json_max_integer)) {
    std::string spelled;
    append_json_number(spelled, value);
    if (spelled != literal)
      return error{errc::malformed, "an integer that a double rounds",
                   "write integers beyond 2^53 as strings"};
  }
  return json_value(value);
}

}  // namespace potl::detail

// SPDX-License-Identifier: Apache-2.0
// Hostile texts: the work until they are refused is bounded, measured in bytes allocated.
#include <string>

#include "allocation_counter.hpp"
#include "catch.hpp"

#include <potl/encoding/json.hpp>

using potl::errc;

namespace {

constexpr std::size_t megabyte = std::size_t{1} << 20;

// Refuses `text` and returns how much memory was in use at most while doing so.
std::size_t peak_of_refusal(const std::string& text, errc expected) {
  const potl_test::allocation_counter counter;
  const auto parsed = potl::parse_json(potl::as_bytes_view(text));
  REQUIRE_FALSE(parsed.has_value());
  INFO(parsed.why().message);
  REQUIRE(parsed.why().message.size() < 256);
  REQUIRE(parsed.why().code == expected);
  return counter.peak();
}

std::string repeated(const std::string& part, std::size_t bytes) {
  std::string out;
  while (out.size() + part.size() <= bytes) out += part;
  return out;
}

}  // namespace

TEST_CASE("a hundred thousand open brackets are refused at the depth limit") {
  REQUIRE(peak_of_refusal(std::string(100000, '['), errc::limit) < megabyte);
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  REQUIRE(peak_of_refusal(objects, errc::limit) < megabyte);
}

TEST_CASE("nesting up to the limit is accepted") {
  const std::string text = std::string(64, '[') + std::string(64, ']');
  REQUIRE(potl::parse_json(potl::as_bytes_view(text)).has_value());
  REQUIRE_FALSE(potl::parse_json(potl::as_bytes_view("[" + text + "]")).has_value());
}

TEST_CASE("a million names are refused at the limit on values") {
  std::string text = "{";
  for (int i = 0; text.size() < 8 * megabyte - 16; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text += "\"x\":0}";
  REQUIRE(peak_of_refusal(text, errc::limit) < 64 * megabyte);
}

TEST_CASE("a number of a million digits is refused after its first bytes") {
  REQUIRE(peak_of_refusal(std::string(megabyte, '9'), errc::limit) < megabyte);
  REQUIRE(peak_of_refusal("0." + std::string(megabyte, '0') + "1", errc::limit) < megabyte);
  REQUIRE(peak_of_refusal("1e" + std::string(megabyte, '0') + "1", errc::limit) < megabyte);
}

TEST_CASE("a text longer than the limit is refused unread") {
  const std::string text = "\"" + std::string(8 * megabyte, 'a') + "\"";
  REQUIRE(peak_of_refusal(text, errc::limit) < 4096);
}

TEST_CASE("a long string is refused, also when it is spelled in escapes") {
  REQUIRE(peak_of_refusal("\"" + std::string(4 * megabyte, 'a') + "\"", errc::limit) <
          16 * megabyte);
  REQUIRE(peak_of_refusal("\"" + repeated("\\u0001", 7 * megabyte) + "\"", errc::limit) <
          16 * megabyte);
  REQUIRE(peak_of_refusal("{\"" + std::string(megabyte, 'a') + "\":1}", errc::limit) <
          16 * megabyte);
}

TEST_CASE("errors after long runs of white space or literals stay small") {
  REQUIRE(peak_of_refusal(std::string(7 * megabyte, '\n') + "x", errc::limit) < 16 * megabyte);
  REQUIRE(peak_of_refusal("[" + repeated("true,", megabyte - 16) + "x]", errc::malformed) <
          48 * megabyte);
  REQUIRE(peak_of_refusal(std::string(megabyte - 16, '\n') + "x", errc::malformed) < 16 * megabyte);
}

TEST_CASE("any text within the default limits stays below 64 MB") {
  const std::string values[] = {"0,",           "[],",         "{},",  "\"0123456789abcdef\",",
                                "{\"a\":[0]},", "[[[[[]]]]],", "1.5,", "{\"\":{\"\":{\"\":0}}},"};
  for (const std::string& value : values) {
    const std::string text = "[" + repeated(value, 8 * megabyte - 8) + "0]";
    INFO(value);
    const potl_test::allocation_counter counter;
    (void)potl::parse_json(potl::as_bytes_view(text));
    REQUIRE(counter.peak() < 64 * megabyte);
  }
}

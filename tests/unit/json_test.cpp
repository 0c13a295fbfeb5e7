// SPDX-License-Identifier: Apache-2.0
#include <clocale>
#include <limits>
#include <string>

#include "catch.hpp"
#include "shared_vectors.hpp"

#include <potl/encoding/json.hpp>

using potl::errc;
using potl::json_value;

namespace {

potl::result<json_value> parse(const std::string& text) {
  return potl::parse_json(potl::as_bytes_view(text));
}

bool accepts(const std::string& text) { return parse(text).has_value(); }

std::string canonical(const std::string& text) { return potl::canonical_json(parse(text).value()); }

}  // namespace

TEST_CASE("the RFC 8785 vectors come out byte for byte") {
  if (!potl_test::have_vectors("jcs-rfc8785")) return;
  const auto folder = potl_test::vectors("jcs-rfc8785") / "testdata";
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "input")) {
    INFO(entry.path());
    const std::string expected = potl_test::contents(folder / "output" / entry.path().filename());
    REQUIRE(canonical(potl_test::contents(entry.path())) == expected);
    REQUIRE(potl::is_canonical(potl::as_bytes_view(expected)));
    ++cases;
  }
  REQUIRE(cases == 6);
}

TEST_CASE("a canonical text is accepted as canonical and every other spelling is not") {
  const std::string text = R"({"a":[1,2.5,"\n"],"b":null})";
  REQUIRE(potl::is_canonical(potl::as_bytes_view(text)));
  for (const char* other : {R"({"b":null,"a":[1,2.5,"\n"]})", R"({"a":[1,2.50,"\n"],"b":null})",
                            R"({"a":[1,2.5,"\u000a"],"b":null})", R"({"a":[1, 2.5,"\n"],"b":null})",
                            R"({"a":[1.0,2.5,"\n"],"b":null})"}) {
    INFO(other);
    REQUIRE(accepts(other));
    REQUIRE_FALSE(potl::is_canonical(potl::as_bytes_view(other)));
  }
}

TEST_CASE("names are ordered by UTF-16 code units, not by code points") {
  REQUIRE(canonical("{\"\xEF\xAC\xB3\":1,\"\xF0\x9F\x98\x82\":2}") ==
          "{\"\xF0\x9F\x98\x82\":2,\"\xEF\xAC\xB3\":1}");
}

TEST_CASE("a name that occurs twice is refused however it is spelled") {
  REQUIRE(accepts(R"({"a":1,"A":2})"));
  REQUIRE_FALSE(accepts(R"({"a":1,"a":1})"));
  REQUIRE_FALSE(accepts(R"({"a":1,"b":2,"\u0061":3})"));
  REQUIRE_FALSE(accepts(R"({"x":{"a":1,"a":2}})"));
}

TEST_CASE("texts outside RFC 8259 are refused") {
  for (const char* text :
       {"",       " ",      "{",         "[1,]",   "{\"a\":1,}", "01",
        "+1",     "1.",     ".5",        "NaN",    "Infinity",   "-Infinity",
        "'a'",    "/*x*/1", "[1]x",      "[1][2]", "tru",        "\xEF\xBB\xBF{}",
        "\"\t\"", "{a:1}",  "\"\\x41\"", "[1 2]",  "--1"}) {
    INFO(text);
    REQUIRE_FALSE(accepts(text));
  }
}

TEST_CASE("text that is not UTF-8 is refused") {
  for (const char* text : {"\"\xC0\xAF\"", "\"\xED\xA0\x80\"", "\"\xF4\x90\x80\x80\"", "\"\x80\"",
                           "\"\xC3\"", "\"\\ud800\"", "\"\\udc00\\ud800\"", "{\"\xFF\":1}"}) {
    INFO(text);
    REQUIRE_FALSE(accepts(text));
  }
  REQUIRE(accepts("\"\\ud83d\\ude02\""));
}

TEST_CASE("a NUL byte does not end the text") {
  REQUIRE_FALSE(accepts(std::string("{}\0", 3)));
  REQUIRE_FALSE(accepts(std::string("{}\0garbage", 10)));
  REQUIRE_FALSE(accepts(std::string("[1\0]", 4)));
  REQUIRE(parse(R"("a\u0000b")").value() == json_value(std::string("a\0b", 3)));
}

TEST_CASE("integers are exact up to 2^53-1 and refused beyond unless a double spells them") {
  REQUIRE(*parse("9007199254740991").value().if_integer() == potl::json_max_integer);
  REQUIRE(*parse("-9007199254740991").value().if_integer() == -potl::json_max_integer);
  for (const char* text : {"9007199254740993", "-9007199254740993", "18446744073709551615",
                           "18446744073709551616", "1152921504606846976"}) {
    INFO(text);
    REQUIRE_FALSE(accepts(text));
  }
  REQUIRE(*parse("100000000000000000000").value().if_number() == 1e20);
  REQUIRE(canonical("1e20") == "100000000000000000000");
}

TEST_CASE("a number has one representation, whichever way it is spelled") {
  REQUIRE(parse("56.0").value() == json_value(56));
  REQUIRE(parse("-0.0").value() == json_value(0));
  REQUIRE(parse("1E2").value() == json_value(100));
  REQUIRE(canonical("[-0,-0.0,0e9]") == "[0,0,0]");
}

TEST_CASE("numbers beyond the range of a double are refused at both ends") {
  REQUIRE(canonical("1.7976931348623157e308") == "1.7976931348623157e+308");
  REQUIRE(canonical("5e-324") == "5e-324");
  for (const char* text : {"1e309", "-1e309", "1e-400", "0.001e-400", "1e999999999999"}) {
    INFO(text);
    REQUIRE_FALSE(accepts(text));
  }
  REQUIRE(accepts("0e-400"));
}

TEST_CASE("numbers do not depend on the locale") {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  const char* other = nullptr;
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"}) {
    if (other == nullptr) other = std::setlocale(LC_NUMERIC, name);
  }
  if (other == nullptr) {
    WARN("skipped: no locale with a decimal comma is installed");
    return;
  }
  const std::string spelled = canonical("[0.5,2.5e-7]");
  std::setlocale(LC_NUMERIC, before.c_str());
  REQUIRE(spelled == "[0.5,2.5e-7]");
}

TEST_CASE("values that JSON cannot carry are refused when they are made") {
  REQUIRE_THROWS_AS(json_value(std::numeric_limits<double>::quiet_NaN()), potl::exception);
  REQUIRE_THROWS_AS(json_value(std::numeric_limits<double>::infinity()), potl::exception);
  REQUIRE_THROWS_AS(json_value(std::uint64_t{1} << 53), potl::exception);
  REQUIRE_THROWS_AS(json_value("\xC0\xAF"), potl::exception);
  REQUIRE_THROWS_AS(json_value::of({{"a", 1}, {"a", 2}}), potl::exception);
  REQUIRE(json_value(1.0) == json_value(1));
}

TEST_CASE("checked access names the path of what is wrong") {
  const json_value doc =
      parse(R"({"data":{"root":5,"list":[1,{"x":true}]},"n":"18446744073709551615"})").value();
  REQUIRE(doc.at("data").integer("root").value() == 5);
  REQUIRE(doc.at("data").at("list").at(1).boolean("x").value());
  REQUIRE(doc.root().decimal("n").value() == 18446744073709551615u);
  REQUIRE(doc.at("data").at("list").size().value() == 2);
  REQUIRE(doc.at("data").string("root").why().message ==
          "data.root: expected a string, found an integer");
  REQUIRE(doc.at("data").at("gone").string("root").why().message == "data.gone: is missing");
  REQUIRE(doc.at("data").at("list").at(2).integer().why().message == "data.list[2]: is missing");
  REQUIRE(doc.root().integer("n").why().code == errc::malformed);
  REQUIRE(doc.root().digest("n").why().message.rfind("n: ", 0) == 0);
}

TEST_CASE("decimal strings have one spelling per integer") {
  for (const char* text : {"\"01\"", "\"\"", "\"-1\"", "\"+1\"", "\" 1\"",
                           "\"18446744073709551616\"", "\"1.0\"", "7"}) {
    INFO(text);
    const json_value value = parse(text).value();
    REQUIRE_FALSE(value.root().decimal().has_value());
  }
  const json_value value = json_value::decimal(0);
  REQUIRE(value.root().decimal().value() == 0);
}

TEST_CASE("unknown members are refused where only known ones are expected") {
  const json_value doc = json_value::of({{"a", 1}, {"b", 2}});
  REQUIRE(doc.root().only({"a", "b", "c"}).has_value());
  REQUIRE_FALSE(doc.root().only({"a"}).has_value());
}

TEST_CASE("members set one by one end in the canonical order") {
  json_value doc;
  doc.set("b", 1).set("a", "x").set("b", 2).set("c", json_value::array{1, nullptr, 0.5});
  REQUIRE(potl::canonical_json(doc) == R"({"a":"x","b":2,"c":[1,null,0.5]})");
}

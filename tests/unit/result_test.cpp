// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.hpp"

#include <potl/core/result.hpp>

using potl::error;
using potl::result;

namespace {

result<std::vector<std::string>> words() { return std::vector<std::string>{"long", "enough"}; }

}  // namespace

TEST_CASE("what a result that goes away gives does not refer to it") {
  STATIC_REQUIRE(std::is_same_v<decltype(words().value()), std::vector<std::string>>);
  STATIC_REQUIRE(std::is_same_v<decltype(*words()), std::vector<std::string>>);
  STATIC_REQUIRE(std::is_same_v<decltype(words().why()), error>);
  std::string joined;
  for (const std::string& one : words().value()) joined += one;
  CHECK(joined == "longenough");
}

TEST_CASE("what a result that stays gives is its own") {
  auto kept = words();
  CHECK(&kept.value() == &*kept);
  CHECK(kept->data() == kept.value().data());
  const std::string* first = kept->data();
  CHECK(std::move(kept).value().data() == first);  // moved, not copied
}

// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <potl/checks/detail/schema.hpp>
#include <potl/core/error.hpp>

#include "state_tree.hpp"

using namespace potl;
using checks::unlawful;

namespace {

using value = tree::value;

value text(const std::string& words) { return {words}; }
value whole(std::int64_t number) { return {number}; }
value real(double number) { return {number}; }
value list(std::vector<value> items) { return {tree::list(std::move(items))}; }

value law(std::vector<value> parts) {
  return {transcript::state_tuple{tree::list(std::move(parts))}};
}

value map_law(std::vector<std::pair<std::string, value>> laws, std::vector<value> optional = {}) {
  return law({text("map"), tree::dict(std::move(laws)), list(std::move(optional))});
}

value tensor_law(const std::string& type, std::vector<value> dims) {
  return law({text("tensor"), text(type), list(std::move(dims))});
}

value kind(const std::string& name) { return law({text("kind"), text(name)}); }
value near(double number, double slack = 0) {
  return law({text("near"), real(number), real(slack)});
}

std::string why(const value& state, const value& laws) {
  const auto found = unlawful(state, laws);
  return found ? std::string(found->rule) + " " + found->text() : "";
}

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan_d = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("keys that the task does not have, and those that lack, are violations with their path") {
  const value laws = map_law({{"a", map_law({{"b", kind("int")}})}});
  REQUIRE(why(tree::dict({{"a", tree::dict({{"b", whole(1)}})}}), laws).empty());
  REQUIRE(why(tree::dict({{"a", tree::dict({{"b", whole(1)}, {"c", whole(1)}})}}), laws) ==
          "agreed.schema a/c: the task has no such value");
  REQUIRE(why(tree::dict({{"a", tree::dict({})}}), laws) ==
          "agreed.schema a/b: the state does not have it");
  REQUIRE(why(tree::dict({{"a", whole(1)}}), laws) ==
          "agreed.schema a: the state holds int, the task a map");
}

TEST_CASE("keys that may be absent may be absent, and are looked at otherwise") {
  const value laws = map_law({{"a", kind("int")}}, {text("a")});
  REQUIRE(why(tree::dict({}), laws).empty());
  REQUIRE_FALSE(why(tree::dict({{"a", real(1)}}), laws).empty());
}

TEST_CASE("an integer key is another than its digits") {
  const value laws{transcript::state_tuple{
      tree::list{text("map"), {tree::map{{std::int64_t{0}, kind("int")}}}, list({})}}};
  REQUIRE(why({tree::map{{std::int64_t{0}, whole(1)}}}, laws).empty());
  REQUIRE_FALSE(why(tree::dict({{"0", whole(1)}}), laws).empty());
}

TEST_CASE("tensors have the dtype and shape of the task's") {
  tree memory;
  const value two = memory.floats({1, 2});
  REQUIRE(why(two, tensor_law("float32", {whole(2)})).empty());
  REQUIRE(why(two, law({text("tensor"), text("float32"), {}})).empty());
  REQUIRE(why(two, tensor_law("float32", {whole(3)})) ==
          "agreed.schema : the state holds float32[2], the task float32[3]");
  REQUIRE_FALSE(why(two, tensor_law("bfloat16", {whole(2)})).empty());
  REQUIRE_FALSE(why(two, tensor_law("float32", {})).empty());
  REQUIRE_FALSE(why(two, kind("float")).empty());
  REQUIRE_FALSE(why(real(1), tensor_law("float32", {})).empty());
}

TEST_CASE("values of the recipe are compared bit for bit, rates within the rounding of libraries") {
  REQUIRE(why(real(0.5), law({text("is"), real(0.5)})).empty());
  REQUIRE(why(real(0.5), law({text("is"), real(0.25)})) ==
          "agreed.recipe_state : is 0.5, agreed is 0.25");
  REQUIRE_FALSE(why(whole(1), law({text("is"), real(1)})).empty());
  REQUIRE_FALSE(why({true}, law({text("is"), whole(1)})).empty());
  REQUIRE(why(list({whole(1)}), law({text("is"), list({whole(1)})})).empty());
  REQUIRE_FALSE(why(list({whole(1)}), law({text("is"), list({whole(2)})})).empty());
  REQUIRE_FALSE(why(list({whole(1)}), law({text("is"), list({})})).empty());
  REQUIRE(why(real(1 + 5e-10), near(1)).empty());
  REQUIRE_FALSE(why(real(1 + 5e-9), near(1)).empty());
  REQUIRE(why(real(1e-12), near(0, 1e-12)).empty());
  REQUIRE_FALSE(why(real(1e-11), near(0, 1e-12)).empty());
}

TEST_CASE("infinities and NaN are near nothing but themselves") {
  REQUIRE(why(real(inf), near(inf)).empty());
  REQUIRE_FALSE(why(real(-inf), near(inf)).empty());
  REQUIRE_FALSE(why(real(inf), near(65536)).empty());
  REQUIRE_FALSE(why(real(1), near(inf)).empty());
  REQUIRE_FALSE(why(real(nan_d), near(1)).empty());
  REQUIRE_FALSE(why(real(inf), law({text("finite")})).empty());
  REQUIRE_FALSE(why(real(nan_d), law({text("finite")})).empty());
  REQUIRE(why(real(1e300), law({text("finite")})).empty());
}

TEST_CASE("counters are whole and within what the steps can count") {
  tree memory;
  const value laws = law({text("count"), whole(0), whole(3)});
  REQUIRE(why(whole(3), laws).empty());
  REQUIRE(why(memory.scalar(2), laws).empty());
  for (const value& wrong :
       {whole(4), whole(-1), memory.scalar(1.5f), memory.scalar(1e30f),
        memory.scalar(std::numeric_limits<float>::quiet_NaN()), memory.floats({1, 2}), real(1)}) {
    REQUIRE_FALSE(why(wrong, laws).empty());
  }
}

TEST_CASE("a moment that is squared into holds nothing below zero") {
  tree memory;
  const value laws = law({text("not negative")});
  std::vector<float> many(1000, 1.0f);
  many[3] = -0.0f;
  REQUIRE(why(memory.floats(many), laws).empty());
  many[999] = -1e-30f;
  REQUIRE(why(memory.floats(many), laws).find("agreed.recipe_state") == 0);
}

TEST_CASE("lists, tuples and ties have the task's form") {
  const value two = law({text("items"), list({kind("int"), kind("str")})});
  REQUIRE(why(list({whole(1), text("x")}), two).empty());
  REQUIRE_FALSE(why(list({whole(1)}), two).empty());
  REQUIRE(why(list({whole(1), text("x"), whole(2)}), two) ==
          "agreed.schema : the state has 3 values, the task 2");
  REQUIRE_FALSE(why(law({whole(1), text("x")}), two).empty());
  REQUIRE(why(law({whole(1)}), law({text("tuple"), list({kind("int")})})).empty());
  REQUIRE(why(list({whole(1), whole(2)}), law({text("each"), kind("int")})).empty());
  REQUIRE_FALSE(why(list({whole(1), text("x")}), law({text("each"), kind("int")})).empty());
  const value tied{transcript::state_alias{"model/parameters/a"}};
  REQUIRE(why(tied, law({text("alias"), text("model/parameters/a")})).empty());
  REQUIRE_FALSE(why(tied, law({text("alias"), text("model/parameters/b")})).empty());
  REQUIRE_FALSE(why(tied, kind("int")).empty());
}

TEST_CASE("of several laws one, or all, must hold") {
  const value one_of = law({text("any"), list({kind("none"), near(1)})});
  REQUIRE(why({}, one_of).empty());
  REQUIRE(why(real(1), one_of).empty());
  REQUIRE(why(real(2), one_of).find("agreed.recipe_state") == 0);
  const value all = law({text("all"), list({kind("float"), near(1)})});
  REQUIRE(why(real(1), all).empty());
  REQUIRE_FALSE(why(real(2), all).empty());
}

TEST_CASE("what is no law is the verifier's own mistake, never a verdict") {
  for (const value& wrong : {whole(1), law({}), law({text("unknown")}), law({text("is")}),
                             law({text("any"), list({})}), law({text("count"), whole(1)})}) {
    REQUIRE_THROWS_AS(unlawful(whole(1), wrong), exception);
  }
}

TEST_CASE("the form of a state is kept by other values and by nothing else") {
  small_state own, other;
  other.weights[1] = 9;
  other.step = 8;
  const value form = checks::form_of(own.root());
  REQUIRE(why(own.root(), form).empty());
  REQUIRE(why(other.root(), form).empty());
  other.weights.push_back(1);
  REQUIRE(why(other.root(), form) ==
          "agreed.schema model/parameters/w: the state holds float32[5], the task float32[4]");
  other = small_state();
  other.has_momentum = false;
  REQUIRE(why(other.root(), form) == "agreed.schema optimizers/0/b: the state does not have it");
  const value tied{transcript::state_alias{"a"}}, open{};
  REQUIRE(why(tied, checks::form_of(tied)).empty());
  REQUIRE_FALSE(why(whole(1), checks::form_of(tied)).empty());
  REQUIRE_FALSE(why(real(1), checks::form_of(whole(1))).empty());
  REQUIRE(why(whole(1), checks::form_of(open)).empty());
}

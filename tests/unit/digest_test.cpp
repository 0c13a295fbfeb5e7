// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <potl/core/digest.hpp>
#include <potl/core/rules.hpp>

TEST_CASE("a digest survives the way through its hexadecimal form") {
  potl::digest d;
  for (std::size_t i = 0; i < d.bytes.size(); ++i) d.bytes[i] = static_cast<std::uint8_t>(i * 7);
  REQUIRE(potl::digest::from_hex(d.hex()).value() == d);
  REQUIRE_FALSE(potl::digest::from_hex(d.hex().substr(1)).has_value());
  REQUIRE_FALSE(potl::digest::from_hex(std::string(64, 'G')).has_value());
}

TEST_CASE("a rule can be switched off in a build with hooks, and only by its name") {
  REQUIRE(potl::rule_enabled("replay.optimizer"));
  REQUIRE(potl::set_rule_enabled("replay.optimizer", false));
  REQUIRE_FALSE(potl::rule_enabled("replay.optimizer"));
  REQUIRE(potl::set_rule_enabled("replay.optimizer", true));
  REQUIRE_FALSE(potl::set_rule_enabled("no.such.rule", false));
}

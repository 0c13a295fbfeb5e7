// SPDX-License-Identifier: Apache-2.0
// What findings of the extra task do to a verdict.
#include "catch.hpp"

#include <vector>

#include <potl/policy.hpp>

namespace {

potl::finding replayed() {
  potl::finding out;
  out.check = "replay";
  out.rule = "replay.random_segments";
  out.result = potl::outcome::pass;
  out.details = {
      {"segments", std::uint64_t{60}}, {"pool", std::uint64_t{58}}, {"judged", std::uint64_t{58}}};
  return out;
}

potl::finding extra(potl::outcome result) {
  potl::finding out;
  out.check = "extra_task";
  out.rule = "extra_task.hits";
  out.result = result;
  out.reason = "hits";
  return out;
}

potl::verdict judged(std::vector<potl::finding> findings) {
  return potl::judge(findings, {true, true, true}, potl::policy()).result;
}

}  // namespace

TEST_CASE("a passed extra task never accepts alone") {
  REQUIRE(judged({replayed()}) == potl::verdict::accepted);
  REQUIRE(judged({extra(potl::outcome::pass)}) == potl::verdict::inconclusive);
  REQUIRE(judged({replayed(), extra(potl::outcome::pass)}) == potl::verdict::accepted);
}

TEST_CASE("a failed extra task rejects, and one without a result keeps a run from acceptance") {
  REQUIRE(judged({replayed(), extra(potl::outcome::reject)}) == potl::verdict::rejected);
  REQUIRE(judged({replayed(), extra(potl::outcome::inconclusive)}) == potl::verdict::inconclusive);
}

// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <potl/checks/storage_plan.hpp>
#include <potl/numeric/soundness.hpp>

using namespace potl;
using namespace potl::checks;

namespace {
storage_goal goal() {
  storage_goal out;
  out.steps = 5000;
  out.step_seconds = 0.1;
  out.state_bytes = 1e6;
  out.budget_bytes = 100e6;
  return out;
}
}  // namespace

TEST_CASE("checkpoints fit the budget and the samples reach the goal") {
  const storage_plan plan = plan_storage(goal()).value();
  REQUIRE(plan.bytes <= 100e6);
  REQUIRE(plan.store_every == plan.checkpoint_every);
  REQUIRE(numeric::strength(plan.segments, plan.samples, 0.05) >= 0.95);
}

TEST_CASE("more disk makes verification cheaper") {
  storage_goal rich = goal();
  rich.budget_bytes *= 10;
  REQUIRE(plan_storage(rich)->verification_fraction < plan_storage(goal())->verification_fraction);
}

TEST_CASE("re-derivation buys shorter segments with the prover's time") {
  storage_goal exact = goal();
  exact.rederive = true;
  const storage_plan with = plan_storage(exact).value(), without = plan_storage(goal()).value();
  REQUIRE(with.bytes <= 100e6);
  REQUIRE(with.verification_fraction + with.rederivation_fraction <= without.verification_fraction);
  REQUIRE(with.store_every % with.checkpoint_every == 0);
}

TEST_CASE("two checkpoints are the least that a budget can hold") {
  storage_goal poor = goal();
  poor.budget_bytes = 2e6;
  REQUIRE(plan_storage(poor)->checkpoint_every == 5000);
  poor.budget_bytes = 1.9e6;
  REQUIRE(plan_storage(poor).why().code == errc::usage);
}

TEST_CASE("a goal that makes no sense is refused") {
  storage_goal wrong = goal();
  wrong.cheat_fraction = 0;
  REQUIRE(plan_storage(wrong).why().code == errc::usage);
}

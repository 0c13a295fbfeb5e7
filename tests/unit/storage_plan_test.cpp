// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <cmath>

#include <potl/checks/detail/storage_plan.hpp>
#include <potl/crypto/challenge.hpp>
#include <potl/statistics/detail/soundness.hpp>
#include <potl/transcript/job.hpp>

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
  REQUIRE(statistics::strength(plan.segments, plan.samples, 0.05) >= 0.95);
}

TEST_CASE("more steps than a job can have are refused, as many as it can have are planned") {
  storage_goal vast = goal();
  vast.steps = potl::transcript::max_job_steps + 1;
  REQUIRE(plan_storage(vast).why().code == errc::usage);
  vast.steps -= 1;
  vast.state_bytes = 1e-9;
  REQUIRE(plan_storage(vast));
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

TEST_CASE("deriving states costs the way to the last challenged one between two stored ones") {
  storage_goal exact = goal();
  exact.rederive = true;
  exact.budget_bytes = 20e6;
  const storage_plan plan = plan_storage(exact).value();
  REQUIRE(plan.checkpoint_every < plan.store_every);
  REQUIRE(plan.verification_fraction < 0.2);
  // Draws like a challenge does, and adds up the ways.
  const std::uint64_t units = plan.store_every / plan.checkpoint_every, rounds = 2000;
  double trained = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::vector<std::uint64_t> last(plan.segments / units + 1, 0);
    digest seed;
    seed.bytes[0] = static_cast<std::uint8_t>(round);
    seed.bytes[1] = static_cast<std::uint8_t>(round >> 8);
    auto drawn = draw_sorted(seed, plan.segments, plan.samples).value();
    drawn.push_back(plan.segments - 1);
    for (const std::uint64_t one : drawn) {
      last[one / units] = std::max(last[one / units], one % units);
    }
    for (const std::uint64_t way : last) trained += static_cast<double>(way);
  }
  const double measured = trained * static_cast<double>(plan.checkpoint_every) / rounds / 5000;
  INFO("measured " << measured << ", planned " << plan.rederivation_fraction);
  REQUIRE(std::abs(plan.rederivation_fraction - measured) < 0.1 * measured);
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

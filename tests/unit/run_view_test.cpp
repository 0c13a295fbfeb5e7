// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"
#include "fake_run.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

/// Steps 41 to 46 were recorded twice more, on branches 1 and 2, and 60 to 63 on branch 1.
struct resumed : fake_run {
  resumed() {
    ranges = {{1, 40, 46, 0}, {2, 40, 46, 0}, {1, 60, 63, 0}};
    for (const auto& range : ranges) {
      for (std::uint64_t step = range.from_step + 1; step <= range.last_step; ++step) {
        superseded.push_back(records[step - 1]);
        superseded.back().loss = static_cast<double>(100 * range.branch + step);
      }
    }
    link();
  }
};

}  // namespace

TEST_CASE("a step is found by its number, wherever it lies") {
  fake_run run;
  REQUIRE(run.view.step(7)->step == 7);
  REQUIRE(run.view.step(1)->step == 1);
  REQUIRE(run.view.step(100)->step == 100);
  REQUIRE(run.view.step(0) == nullptr);
  REQUIRE(run.view.step(101) == nullptr);
  run.records.erase(run.records.begin() + 9);
  run.link();
  REQUIRE(run.view.step(10) == nullptr);
  REQUIRE(run.view.step(11)->step == 11);
  REQUIRE(run.view.step(100)->step == 100);
}

TEST_CASE("a superseded step is found on its branch, and on no other") {
  const resumed run;
  const auto loss = [&](std::uint64_t branch, std::uint64_t step) {
    const auto* record = run.view.superseded_step(branch, step);
    return record == nullptr ? 0 : record->loss;
  };
  for (std::uint64_t step = 41; step <= 46; ++step) {
    CHECK(loss(1, step) == 100.0 + static_cast<double>(step));
    CHECK(loss(2, step) == 200.0 + static_cast<double>(step));
    CHECK(loss(3, step) == 0);
  }
  CHECK(loss(1, 61) == 161);
  CHECK(loss(1, 63) == 163);
  CHECK(loss(2, 61) == 0);
  for (const std::uint64_t step : {40u, 47u, 60u, 64u}) CHECK(loss(1, step) == 0);
}

TEST_CASE("a superseded record of another step stands for none") {
  resumed run;
  run.superseded[2].step = 99;
  run.link();
  CHECK(run.view.superseded_step(1, 43) == nullptr);
  CHECK(run.view.superseded_step(1, 44) != nullptr);
  run.superseded.resize(3);
  run.link();
  CHECK(run.view.superseded_step(1, 44) == nullptr);
}

TEST_CASE("a job that the prover wrote has no more steps than were recorded") {
  fake_run run(95, 10);
  run.view.agreed.steps = 1000;
  REQUIRE(segments_of(run.view).size() == 100);
  run.view.job_is_own = false;
  REQUIRE(segments_of(run.view).back() == segment{90, 95});
}

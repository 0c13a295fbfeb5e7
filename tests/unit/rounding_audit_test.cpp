// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <potl/checks/detail/rounding_audit.hpp>

using namespace potl;

TEST_CASE("audits of steps add up", "[rounding_audit]") {
  checks::rounding_summary seen;
  numeric::step_audit step;
  step.step = 3;
  step.values = 100;
  step.entries = 5;
  step.corrections = 2;
  step.moved_l2 = 0.5;
  step.reachable_l2 = 4;
  checks::add(seen, step);
  step.moved_l2 = 0.25;
  step.reachable_l2 = 8;
  checks::add(seen, step);
  CHECK((seen.values == 200 && seen.entries == 10 && seen.corrections == 4));
  CHECK((seen.moved_l2 == 0.5 && seen.reachable_l2 == 8));
  CHECK((seen.rejected == 0 && seen.rejections.empty()));
}

TEST_CASE("the first rejections of a segment are listed with their proofs", "[rounding_audit]") {
  checks::rounding_summary seen;
  numeric::step_audit step;
  numeric::fraud_proof proof;
  proof.log = {1, 2, 3};
  step.rejections.assign(numeric::max_rejections - 1,
                         {numeric::log_fault::outside_window, "element 7", proof});
  step.rejected = 40;
  step.step = 1;
  checks::add(seen, step);
  step.step = 2;
  step.rejections.front() = {numeric::log_fault::not_committed, "late", std::nullopt};
  checks::add(seen, step);
  REQUIRE(seen.rejections.size() == numeric::max_rejections);
  CHECK(seen.rejected == 80);
  CHECK(seen.rejections.front().fault == numeric::to_string(numeric::log_fault::outside_window));
  CHECK((seen.rejections.front().step == 1 && seen.rejections.front().message == "element 7"));
  CHECK(!seen.rejections.front().proof.empty());
  CHECK((seen.rejections.back().step == 2 && seen.rejections.back().proof.empty()));
}

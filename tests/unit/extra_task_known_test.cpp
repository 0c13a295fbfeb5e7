// SPDX-License-Identifier: Apache-2.0
// Three verdicts with labels: between rejected and accepted lies a model that knows few samples.
#include "catch.hpp"

#include <vector>

#include <potl/checks/extra_task.hpp>

#include "fake_run.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

// Answers of which the first `hits` are right and no other is.
std::vector<double> answers(std::uint64_t count, std::uint64_t classes, std::uint64_t hits) {
  std::vector<double> out;
  for (std::uint64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<double>((i + (i < hits ? 0 : 1)) % classes));
  }
  return out;
}

extra_result judged(std::uint64_t hits, const extra_task_options& options = {},
                    std::uint64_t classes = 10, std::uint64_t samples = 200) {
  const auto extra = answers(samples, classes, hits);
  const auto control = answers(4 * samples, classes, 4 * samples / classes);
  return judge_extra_task(options, samples, classes, {extra, control}).value();
}

}  // namespace

TEST_CASE("with more hits a model is rejected, then inconclusive, then accepted") {
  for (const std::uint64_t classes : {2u, 10u}) {
    outcome last = outcome::reject;
    std::uint64_t between = 0;
    for (std::uint64_t hits = 0; hits <= 200; ++hits) {
      const auto found = judged(hits, {}, classes);
      INFO(hits);
      const bool escaped = found.hits >= found.needed && found.hits >= found.needed_against_control;
      const bool enough = found.hits >= found.needed_for_acceptance;
      REQUIRE(found.needed_for_acceptance >= found.needed);
      REQUIRE(found.needed_for_acceptance >= found.needed_against_control);
      const outcome middle = escaped ? outcome::inconclusive : outcome::reject;
      REQUIRE(found.result == (enough ? outcome::pass : middle));
      REQUIRE((found.acceptance_p_value <= found.level) == enough);
      REQUIRE(count(found.findings, outcome::inconclusive, "extra_task.known") ==
              (found.result == outcome::inconclusive ? 1 : 0));
      REQUIRE((last != outcome::pass || found.result == outcome::pass));
      last = found.result;
      between += found.result == outcome::inconclusive;
    }
    REQUIRE(last == outcome::pass);
    REQUIRE(between > 5);
  }
}

TEST_CASE("what is between says what it means and what to do") {
  const auto found = judged(45);
  REQUIRE(found.result == outcome::inconclusive);
  REQUIRE(found.known == Approx((0.225 - 0.1) / 0.9));
  for (const char* words : {"has seen the extra samples", "13.9 %", "45 of 200", "stopped early",
                            "part of the data", "epochs", "Train longer", "reference run"}) {
    INFO(found.reason);
    REQUIRE(found.reason.find(words) != std::string::npos);
  }
  REQUIRE(judged(200).known == 1);
  REQUIRE(judged(3).known == 0);
}

TEST_CASE("a least share of nothing leaves two verdicts, as a rule that is off does") {
  extra_task_options off;
  off.least_known = 0;
  REQUIRE(judged(45, off).result == outcome::pass);
  REQUIRE(judged(45, off).needed_for_acceptance == judged(45).needed_against_control);
  REQUIRE(judged(30, off).result == outcome::reject);
  const rule_off known("extra_task.known");
  REQUIRE(judged(45).result == outcome::pass);
}

TEST_CASE("whatever a failure means, a model that knows few samples is inconclusive") {
  extra_task_options gentle;
  gentle.failing = "inconclusive";
  REQUIRE(judged(45, gentle).result == outcome::inconclusive);
  REQUIRE(judged(45, gentle).reason.find("has seen") != std::string::npos);
  REQUIRE(judged(0, gentle).reason.find("has not learned") != std::string::npos);
}

TEST_CASE("knowing a share adds less to guessing where there are few classes") {
  const extra_task_options options;
  REQUIRE(extra_margin(options, 2) == Approx(0.075));
  REQUIRE(extra_margin(options, 10) == Approx(0.135));
  REQUIRE(extra_margin(options, 0) == 0.03);
  extra_task_options small;
  small.least_known = 0.05;
  REQUIRE(extra_margin(small, 2) == 0.03);  // no less than epsilon
  REQUIRE(
      judge_extra_task({}, 200, 2, {answers(200, 2, 120), answers(800, 2, 400)}).value().result !=
      outcome::pass);
}

TEST_CASE("a plan says what acceptance takes beside what a rejection takes") {
  const auto plan = plan_extra_task(50000, 10, {}).value();
  REQUIRE(plan.threshold.needed == 68);
  REQUIRE(plan.needed_for_acceptance == judged(0, {}, 10, 400).needed_for_acceptance);
  REQUIRE(plan.acceptance.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(plan.acceptance[i].power == plan.powers[i].power);
    REQUIRE(plan.acceptance[i].learned > plan.powers[i].learned);
    REQUIRE(plan.acceptance[i].share > 0.15);
  }
  extra_task_options off;
  off.least_known = 0;
  const auto two = plan_extra_task(50000, 10, off).value();
  REQUIRE(two.acceptance[1].learned == two.powers[1].learned);
  REQUIRE(plan_extra_task(50000, 0, {}).value().acceptance.empty());
  off.least_known = 0.9;
  REQUIRE(plan_extra_task(50000, 10, off).value().warnings.size() == 1);  // all must be learned
  off.least_known = 0.91;
  REQUIRE_FALSE(plan_extra_task(50000, 10, off).has_value());
}

TEST_CASE("without labels the effect is that within grades, and acceptance takes a least one") {
  // Errors grow with the grade by far more than by what is known.
  const auto errors = [](std::uint64_t count, double shift) {
    std::vector<double> out;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto place = static_cast<double>(i * 7919 % 997) / 997;
      out.push_back(10 * static_cast<double>(i % 200 % 3) + place + shift);
    }
    return out;
  };
  const auto control = errors(800, 0);
  const auto with = [&](double shift, const extra_task_options& options = {}) {
    const auto extra = errors(200, shift);
    return judge_extra_task(options, 200, 0, {extra, control}).value();
  };
  REQUIRE(with(0).effect == Approx(0.5).margin(0.03));
  REQUIRE(with(0).result == outcome::reject);
  REQUIRE(with(-1).effect == 1);  // although it is below few of the easier controls
  REQUIRE(with(-1).result == outcome::pass);
  REQUIRE(with(-0.5).effect == Approx(0.875).margin(0.02));
  REQUIRE(with(-1).needed_effect == Approx(0.766).margin(0.001));

  extra_task_options strict;
  strict.least_effect = 0.9;
  strict.alpha = 0.3;  // grades hide the rest from the ranks of all
  const auto between = with(-0.5, strict);
  REQUIRE(between.result == outcome::inconclusive);
  REQUIRE(count(between.findings, outcome::inconclusive, "extra_task.known") == 1);
  REQUIRE(between.reason.find("of pairs") != std::string::npos);
  REQUIRE(between.acceptance_p_value > between.level);
  strict.least_effect = 0.5;
  REQUIRE(with(-0.5, strict).result == outcome::pass);
  REQUIRE(with(-0.5, strict).needed_effect == 0);
  strict.least_effect = 0.49;
  REQUIRE_FALSE(strict.validate().has_value());

  REQUIRE(plan_extra_task(20000, 0, {}).value().needed_effect == with(0).needed_effect);
  extra_task_options many;
  many.least_effect = 0.95;
  many.submissions = 1000;
  many.alpha = 0.001;
  REQUIRE(plan_extra_task(50000, 0, many).value().needed_effect <= 1);
  REQUIRE(plan_extra_task(20000, 0, many).value().needed_effect > 1);
  REQUIRE_FALSE(plan_extra_task(20000, 0, many).value().warnings.empty());
}

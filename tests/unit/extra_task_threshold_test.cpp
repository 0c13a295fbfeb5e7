// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <vector>

#include <potl/checks/extra_task.hpp>

using namespace potl;
using namespace potl::checks;

namespace {

std::uint64_t needed(std::uint64_t samples, std::uint64_t classes, double alpha = 0.01,
                     double epsilon = 0.03) {
  return extra_threshold_of(samples, classes, alpha, epsilon).value().needed;
}

std::vector<std::string> names(const std::vector<extra_grade>& grades) {
  std::vector<std::string> out;
  for (const auto& one : grades) out.push_back(one.name());
  return out;
}

}  // namespace

TEST_CASE("the published thresholds are exact") {
  REQUIRE(needed(400, 10) == 68);
  REQUIRE(needed(400, 100) == 27);
  REQUIRE(needed(200, 2) == 120);
  REQUIRE(needed(960, 4) == 295);
}

TEST_CASE("thresholds of the sweep over eta are exact") {
  // CIFAR-10: eta 0.4, 0.8, 1.2, 1.6, 2, 2.8, 4 % of 50,000; computed with exact rationals.
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> sweep{
      {200, 38}, {400, 68}, {600, 97}, {800, 125}, {1000, 153}, {1400, 208}, {2000, 290}};
  for (const auto& [samples, hits] : sweep) REQUIRE(needed(samples, 10) == hits);
}

TEST_CASE("a tail that equals alpha asks for one hit more") {
  // P(X > 3) = 1/16 for four fair coins: 3 would do on paper, rounding is not trusted.
  REQUIRE(needed(4, 2, 0.0625, 0) == 5);
  REQUIRE(needed(4, 2, 0.0626, 0) == 4);
}

TEST_CASE("submissions share alpha") {
  REQUIRE(extra_threshold_of(400, 10, 0.01, 0.03, 10).value().needed == needed(400, 10, 0.001));
  REQUIRE(needed(400, 10, 0.001) > needed(400, 10));
}

TEST_CASE("shares are decimals of six places") {
  REQUIRE(millionths(0.1 + 0.2) == 300000);
  REQUIRE(millionths(0.999999) == 999999);
  REQUIRE(millionths(-1) == 0);
  REQUIRE(extra_grade{750000, false}.name() == "0.75");
  REQUIRE(extra_grade{500000, true}.name() == "noisy:0.5");
  REQUIRE(extra_grade::parse("noisy:0.35").value() == extra_grade{350000, true});
  for (const char* wrong :
       {"", "1", "0", "0.75 ", "noisy", "noisy:", "nan", "-0.5", "0.5x", "1e-1"}) {
    INFO(wrong);
    REQUIRE_FALSE(extra_grade::parse(wrong).has_value());
  }
}

TEST_CASE("the side of a random region is an integer square root") {
  REQUIRE(extra_region(10, 910000) == 3);  // in doubles sqrt(1 - 0.91) * 10 is 2.9999999999999996
  REQUIRE(extra_region(32, 750000) == 16);
  REQUIRE(extra_region(32, 350000) == 25);
  REQUIRE(extra_region(32, 850000) == 12);
  REQUIRE(extra_region(224, 750000) == 112);
  REQUIRE(extra_region(100, 990000) == 10);
  REQUIRE(extra_region(1, 990000) == 0);
  REQUIRE(extra_words(200, 750000) == 50);
  REQUIRE(extra_words(10, 910000) == 0);
  REQUIRE(extra_words(100, 930000) == 7);  // in doubles 6.999999999999995
}

TEST_CASE("a threshold needs samples, classes and levels that make sense") {
  REQUIRE_FALSE(extra_threshold_of(0, 10, 0.01, 0.03).has_value());
  REQUIRE_FALSE(extra_threshold_of(400, 1, 0.01, 0.03).has_value());
  REQUIRE_FALSE(extra_threshold_of(400, 10, 0, 0.03).has_value());
  REQUIRE_FALSE(extra_threshold_of(400, 10, 0.6, 0.03).has_value());
  REQUIRE_FALSE(extra_threshold_of(400, 10, 0.01, -0.1).has_value());
  REQUIRE_FALSE(extra_threshold_of(400, 10, 0.01, 0.03, 0).has_value());
}

TEST_CASE("the ladder of a layout, and one that is asked for") {
  extra_task_options options;
  REQUIRE(names(extra_grades(options, 40).value()) ==
          std::vector<std::string>{"0.6", "0.75", "0.85"});
  REQUIRE(names(extra_grades(options, 2).value()) == std::vector<std::string>{"0.75"});
  options.fixed = 0.35;
  REQUIRE(names(extra_grades(options, 3).value()) ==
          std::vector<std::string>{"0.01", "0.35", "0.61"});
  options.layout = "paper";
  REQUIRE(names(extra_grades(options, 40).value()) == std::vector<std::string>{"0.35"});
  options.grades = {"0.5", "noisy:0.75"};
  REQUIRE(names(extra_grades(options, 2).value()) == std::vector<std::string>{"0.5", "noisy:0.75"});
  REQUIRE_FALSE(extra_grades(options, 1).has_value());
}

TEST_CASE("a plan balances classes and says when eta was raised") {
  const extra_task_options options;
  const auto cifar = plan_extra_task(50000, 10, options).value();
  REQUIRE(cifar.samples == 400);
  REQUIRE(cifar.controls == 1600);
  REQUIRE(cifar.uploads == 400);
  REQUIRE(cifar.threshold.needed == 68);
  REQUIRE(cifar.warnings.empty());
  const auto digits = plan_extra_task(1437, 10, options).value();
  REQUIRE(digits.samples == 200);
  REQUIRE(digits.eta == Approx(200.0 / 1437));
  REQUIRE(digits.warnings.size() == 2);  // raised, and more than 3 %
  const auto odd = plan_extra_task(60000, 7, options).value();
  REQUIRE(odd.samples == 483);  // 480 rounded up
  REQUIRE_FALSE(plan_extra_task(0, 10, options).has_value());
  REQUIRE_FALSE(plan_extra_task(50000, 1, options).has_value());
  const auto unlabelled = plan_extra_task(50000, 0, options).value();
  REQUIRE(unlabelled.samples == 400);
  REQUIRE(unlabelled.powers.empty());
}

TEST_CASE("noisy grades are uploaded three times") {
  extra_task_options options;
  options.grades = {"0.75", "noisy:0.75"};
  const auto plan = plan_extra_task(50000, 10, options).value();
  REQUIRE(plan.uploads == 200 + 3 * 200);
}

TEST_CASE("the learned share in a plan gives the stated power, by simulation of nothing else") {
  const extra_task_options options;
  const auto plan = plan_extra_task(50000, 10, options).value();
  REQUIRE(plan.powers.size() == 3);
  REQUIRE(plan.powers[0].learned < plan.powers[1].learned);
  REQUIRE(plan.powers[1].learned < plan.powers[2].learned);
  // Half of the models with this many learned samples hit what both tests need: mean hits are
  // learned + (400 - learned) / 10, and the controls' mean, 160 of 1600, needs NEED_160 hits.
  const double hits = static_cast<double>(plan.powers[0].learned) * 0.9 + 40;
  REQUIRE(hits == Approx(72).margin(2));
  extra_task_options many;
  many.submissions = 100;
  REQUIRE(plan_extra_task(50000, 10, many).value().powers[1].learned > plan.powers[1].learned);
}

TEST_CASE("options are parsed, and a wrong one is named") {
  REQUIRE(extra_task_options::parse(json_value::of({{"eta", 0.02}})).value().eta == 0.02);
  REQUIRE_FALSE(extra_task_options::parse(json_value::of({{"layout", "corner"}})).has_value());
  REQUIRE_FALSE(extra_task_options::parse(json_value::of({{"alpha", 0.0}})).has_value());
  const auto wrong = extra_task_options::parse(
      json_value::of({{"grades", json_value(json_value::array{"0.75", "half"})}}));
  REQUIRE_FALSE(wrong.has_value());
  REQUIRE(wrong.why().message.find("half") != std::string::npos);
}

TEST_CASE("options that a program sets out of range are refused everywhere") {
  const std::vector<double> answers(200), controls(800);
  const auto refused = [&](auto change) {
    extra_task_options options;
    change(options);
    return !options.validate().has_value() && !plan_extra_task(50000, 10, options).has_value() &&
           !judge_extra_task(options, 200, 10, {answers, controls}).has_value();
  };
  REQUIRE_FALSE(refused([](auto&) {}));
  REQUIRE(refused([](auto& options) { options.alpha = 0; }));
  REQUIRE(refused([](auto& options) { options.alpha = std::nan(""); }));
  REQUIRE(refused([](auto& options) { options.layout = "corner"; }));
  REQUIRE(refused([](auto& options) { options.noise = 33; }));
  REQUIRE(refused([](auto& options) { options.control = 0; }));
  REQUIRE(refused([](auto& options) { options.submissions = 0; }));
  REQUIRE(refused([](auto& options) { options.grades = {"easy"}; }));
}

TEST_CASE("a plan says what the extra samples cost, no less than experiments that passed") {
  // (eta in percent, mean, end of the interval) of docs/experiments/extra_task.md.
  const double kept[][3] = {{15.9, 0.48, 0.84},  {15.9, -0.04, 0.41}, {3.0, 0.55, 0.95},
                            {3.0, 0.12, 0.76},   {15.9, 0.02, 0.32},  {3.0, 0.40, 0.85},
                            {1.0, 0.22, 0.88},   {1.0, 0.99, 1.85},   {0.8, 0.18, 1.31},
                            {2.0, -1.06, -0.46}, {1.0, -0.21, 0.31}};
  for (const auto& [eta, mean, end] : kept) {
    const auto cost = extra_cost(eta / 100);
    INFO(eta);
    REQUIRE(cost.expected >= mean);
    REQUIRE(cost.most >= end);
    REQUIRE(cost.most >= cost.expected);
  }
  REQUIRE(plan_extra_task(50'000, 10, {}).value().accuracy.expected == Approx(0.8));
  REQUIRE(plan_extra_task(50'000, 0, {}).value().accuracy.most == 0);
}

TEST_CASE("a plan beyond what was measured says so, and names no less than in proportion") {
  const auto plan = plan_extra_task(500, 10'000, {}).value();
  REQUIRE(plan.eta == 20);
  REQUIRE_FALSE(plan.accuracy.measured);
  REQUIRE(plan.accuracy.expected == 100);
  std::string warnings;
  for (const std::string& one : plan.warnings) warnings += one + "\n";
  REQUIRE(warnings.find("no experiment had more than 16 %") != std::string::npos);
  const auto twice = extra_cost(0.32);
  REQUIRE_FALSE(twice.measured);
  REQUIRE(twice.expected == Approx(2));
  REQUIRE(twice.most == Approx(3.8));
  REQUIRE(extra_cost(0.16).measured);
}

TEST_CASE("a plan says where guesses hide the share that is asked for") {
  extra_task_options options;
  const auto warnings = [&](std::uint64_t samples, std::uint64_t classes) {
    return plan_extra_task(samples, classes, options).value().warnings;
  };
  const auto two = warnings(25'000, 2);
  REQUIRE(two.size() == 1);
  REQUIRE(two[0].find("a model that knows 26.5 % of the extra samples is rejected every second") !=
          std::string::npos);
  REQUIRE(warnings(250'000, 2).empty());
  REQUIRE(warnings(25'000, 10).empty());
  options.least_known = 0.3;
  REQUIRE(warnings(25'000, 2).empty());
  options.least_known = 0;  // nothing is between
  REQUIRE(warnings(25'000, 2).empty());
  options.least_known = 0.15;
  options.failing = "inconclusive";
  REQUIRE(warnings(25'000, 2).empty());
}

TEST_CASE("copies of noisy samples count in the cost of a plan") {
  extra_task_options options;
  options.eta = 0.02;
  options.grades = {"noisy:0.75"};
  const auto plan = plan_extra_task(26'316, 10, options).value();
  REQUIRE(plan.uploads == 3 * plan.samples);
  REQUIRE(plan.accuracy.expected == Approx(1));
  REQUIRE(plan.warnings.size() == 1);
  REQUIRE(plan.warnings[0].find("copies) are 6") != std::string::npos);
  options.eta = 0.002;
  options.grades = {"noisy:0.75"};
  // 200 samples are 0.2 % of 100,000, and 600 are 0.6 %.
  REQUIRE(plan_extra_task(100'000, 10, options).value().accuracy.expected == Approx(0.6));
}

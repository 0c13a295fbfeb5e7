// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <potl/statistics/detail/soundness.hpp>
#include <potl/statistics/displacement.hpp>

#include "allocation_counter.hpp"

using namespace potl;
using namespace potl::statistics;

namespace {

displacement_goal goal_of(double displacement) {
  displacement_goal out;
  out.clip = 1;
  out.displacement = displacement;
  return out;
}

displacement_goal goal_of_steps(std::uint64_t steps) {
  displacement_goal out;
  out.clip = 1;
  out.steps_at_risk = steps;
  return out;
}

// Rates that differ, and momentum: what a step moves lies between 0.05 and 0.6.
std::vector<double> some_responses(std::size_t steps) {
  std::vector<double> rates(steps);
  for (std::size_t i = 0; i < steps; ++i) {
    rates[i] = 0.05 * (1 + std::fmod(static_cast<double>(i) * 0.618, 1.0));
  }
  return gradient_responses(rates, {0.8, 0, false}).value();
}

// Of all sets of false steps that carry the weights further than was certified, the largest
// probability that none of them is caught.
double largest_miss(const std::vector<double>& responses, const displacement_goal& goal) {
  const displacement_plan plan = plan_displacement(responses, goal).value();
  double out = 0;
  for (std::uint64_t set = 0; set < std::uint64_t{1} << responses.size(); ++set) {
    double moved = plan.certificate.leak, missed = 1;
    for (std::size_t step = 0; step < responses.size(); ++step) {
      if ((set >> step & 1U) == 0) continue;
      moved += 2 * goal.clip * responses[step];
      missed *= 1 - plan.probabilities[step] * (1 - goal.miss_rate);
    }
    if (moved > plan.certificate.displacement * (1 + 1e-12)) out = std::max(out, missed);
  }
  return out;
}

double number_after(const std::string& text, const std::string& words) {
  const std::size_t at = text.find(words);
  REQUIRE(at != std::string::npos);
  return std::strtod(text.c_str() + at + words.size(), nullptr);
}

}  // namespace

TEST_CASE("a step of plain descent moves the weights by its rate") {
  const std::vector<double> rates{0.1, 0.2, 0.05};
  REQUIRE(gradient_responses(rates, {}).value() == rates);
}

TEST_CASE("a gradient acts through momentum until the training ends") {
  const std::vector<double> rates{0.1, 0.2, 0.4};
  const auto heavy = gradient_responses(rates, {0.5, 0, false}).value();
  REQUIRE(heavy[0] == Approx(0.1 + 0.1 + 0.1).epsilon(1e-14));
  REQUIRE(heavy[1] == Approx(0.2 + 0.2).epsilon(1e-14));
  REQUIRE(heavy[2] == Approx(0.4).epsilon(1e-14));
  const auto nesterov = gradient_responses(rates, {0.5, 0, true}).value();
  REQUIRE(nesterov[0] == Approx(0.1 + 0.5 * 0.3).epsilon(1e-14));
  REQUIRE(nesterov[2] == Approx(0.4 * 1.5).epsilon(1e-14));
}

TEST_CASE("dampening spares the first step, and a training without momentum") {
  const std::vector<double> rates{0.1, 0.2, 0.4};
  const auto damped = gradient_responses(rates, {0.5, 0.75, false}).value();
  REQUIRE(damped[0] == Approx(0.3).epsilon(1e-14));
  REQUIRE(damped[1] == Approx(0.1).epsilon(1e-14));
  REQUIRE(gradient_responses(rates, {0, 0.75, false}).value() == rates);
}

TEST_CASE("momentum moves no step further than the largest rate over one minus the momentum") {
  const std::vector<double> rates(300, 0.1);
  for (const bool nesterov : {false, true}) {
    const auto found = gradient_responses(rates, {0.9, 0, nesterov}).value();
    const double bound = 0.1 / (1 - 0.9);
    REQUIRE(*std::max_element(found.begin(), found.end()) <= bound * (1 + 1e-14));
    REQUIRE(found[0] == Approx(bound).epsilon(1e-12));
    REQUIRE(found[299] < 0.2 * bound);
  }
}

TEST_CASE("the checking probability of steps at risk is the one of the table for .999") {
  const std::vector<double> responses(2000, 0.1);
  const auto probability = [&](std::uint64_t steps) {
    const auto plan = plan_displacement(responses, goal_of_steps(steps)).value();
    REQUIRE(plan.expected_checks == Approx(2000 * plan.probabilities[7]));
    return plan.probabilities[7];
  };
  REQUIRE(std::round(probability(1) * 1e3) == 999);
  REQUIRE(std::round(probability(10) * 1e3) == 499);
  REQUIRE(std::round(probability(100) * 1e3) == 67);
  REQUIRE(std::round(probability(1000) * 1e4) == 69);
}

TEST_CASE("no set of false steps beyond the certificate is missed with more than was planned") {
  const std::vector<double> responses = some_responses(12);
  for (const double miss_rate : {0.0, 0.05}) {
    for (const double tolerance : {0.0, 0.03}) {
      for (const double part : {0.1, 0.3, 0.7, 0.95}) {
        displacement_goal goal =
            goal_of(2 * part * std::accumulate(responses.begin(), responses.end(), 0.0));
        goal.probability = 0.9;
        goal.miss_rate = miss_rate;
        goal.tolerance = tolerance;
        const double missed = largest_miss(responses, goal);
        CAPTURE(miss_rate, tolerance, part);
        REQUIRE(missed <= 0.1 * (1 + 1e-9));
        REQUIRE(missed >= 0.03);  // and not because everything is checked
      }
      for (const std::uint64_t steps : {1U, 3U, 8U}) {
        displacement_goal goal = goal_of_steps(steps);
        goal.probability = 0.9;
        goal.miss_rate = miss_rate;
        goal.tolerance = tolerance;
        CAPTURE(miss_rate, tolerance, steps);
        REQUIRE(largest_miss(responses, goal) == Approx(0.1).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("the certificate of steps at risk is below the published bound") {
  // eta (B tau + 2 c m) / (1 - mu)
  const std::vector<double> rates(500, 0.05);
  const auto responses = gradient_responses(rates, {0.9, 0, false}).value();
  displacement_goal goal = goal_of_steps(20);
  goal.tolerance = 1e-3;
  const auto found = plan_displacement(responses, goal)->certificate;
  const double published = 0.05 * (500 * 1e-3 + 2 * 20) / (1 - 0.9);
  REQUIRE(found.displacement <= published);
  REQUIRE(found.displacement >= 0.9 * published);
}

TEST_CASE("a step that alone carries too far is checked as if one were at risk, and no more") {
  const std::vector<double> responses{0.001, 3, 30};
  const auto plan = plan_displacement(responses, goal_of(1)).value();
  REQUIRE(plan.probabilities[1] == Approx(0.999));
  REQUIRE(plan.probabilities[2] == plan.probabilities[1]);
  REQUIRE(plan.probabilities[0] == Approx(1 - std::pow(1e-3, 0.002)));
}

TEST_CASE("a step that moves nothing is not checked, and none is where clipping is enough") {
  const std::vector<double> responses{0.1, 0, 0.2};
  REQUIRE(plan_displacement(responses, goal_of(0.3))->probabilities[1] == 0);
  const auto enough = plan_displacement(responses, goal_of(0.6000001)).value();
  REQUIRE(enough.expected_checks == 0);
  REQUIRE(enough.certificate.displacement == Approx(0.6));
  REQUIRE(enough.certificate.sentence().find("clipping alone") != std::string::npos);
  REQUIRE(plan_displacement(responses, goal_of(0.59))->expected_checks > 0);
}

TEST_CASE("the leak is the tolerance on every step, or what clipping leaves of it") {
  const std::vector<double> responses{0.1, 0.3};
  displacement_goal goal = goal_of(0.5);
  goal.tolerance = 0.2;
  const auto found = plan_displacement(responses, goal)->certificate;
  REQUIRE(found.leak == Approx(0.2 * 0.4));
  REQUIRE(found.clipped == Approx(2 * 0.4));
  REQUIRE(found.sentence().find("of which 0.08 ") != std::string::npos);
  goal.tolerance = 1e300;
  REQUIRE(plan_displacement(responses, goal).why().message.starts_with("unreachable"));
  goal.displacement = 0.9;
  REQUIRE(plan_displacement(responses, goal)->certificate.leak == Approx(0.8));
}

TEST_CASE("a plan that the leak makes unreachable is reached as the remedy says") {
  const std::vector<double> responses = some_responses(50);
  displacement_goal goal = goal_of(0.7);
  goal.tolerance = 0.1;
  const error why = plan_displacement(responses, goal).why();
  REQUIRE(why.code == errc::unsupported);
  REQUIRE(why.message.starts_with("unreachable"));
  displacement_goal finer = goal;
  finer.tolerance = 0.9999 * number_after(why.remedy, "a tolerance below ");
  REQUIRE(plan_displacement(responses, finer));
  finer.tolerance = 1.001 * number_after(why.remedy, "a tolerance below ");
  REQUIRE_FALSE(plan_displacement(responses, finer));
  goal.displacement = 1.0001 * number_after(why.remedy, "a displacement above ");
  REQUIRE(plan_displacement(responses, goal));
}

TEST_CASE("a plan that missing checks make unreachable is reached as the remedy says") {
  const std::vector<double> responses = some_responses(50);
  for (const bool by_steps : {false, true}) {
    displacement_goal goal = by_steps ? goal_of_steps(2) : goal_of(2);
    goal.miss_rate = 0.2;
    goal.tolerance = 1e-3;
    const error why = plan_displacement(responses, goal).why();
    REQUIRE(why.code == errc::unsupported);
    REQUIRE(why.message.starts_with("unreachable"));
    displacement_goal better = goal;
    better.miss_rate = number_after(why.remedy, "a miss_rate of at most ");
    REQUIRE(plan_displacement(responses, better));
    better.miss_rate *= 1.01;
    REQUIRE_FALSE(plan_displacement(responses, better));
    displacement_goal weaker = goal;
    weaker.probability = number_after(why.remedy, "a probability of at most ");
    REQUIRE(plan_displacement(responses, weaker));
    weaker.probability += 0.01 * (1 - weaker.probability);
    REQUIRE_FALSE(plan_displacement(responses, weaker));
    if (by_steps) {
      const auto least =
          static_cast<std::uint64_t>(number_after(why.remedy, "steps_at_risk of at least "));
      goal.steps_at_risk = least;
      REQUIRE(plan_displacement(responses, goal));
      goal.steps_at_risk = least - 1;
      REQUIRE_FALSE(plan_displacement(responses, goal));
    } else {
      const double least = number_after(why.remedy, "a displacement of at least ");
      goal.displacement = least;
      REQUIRE(plan_displacement(responses, goal));
      goal.displacement = 0.99 * least;
      REQUIRE_FALSE(plan_displacement(responses, goal));
    }
  }
}

TEST_CASE("a sentence does not round a probability to certainty") {
  displacement_goal goal = goal_of(0.5);
  goal.probability = 0.9999999999;
  const std::vector<double> responses(10, 0.1);
  const std::string said = plan_displacement(responses, goal)->certificate.sentence();
  REQUIRE(said.starts_with("With probability 0.9999999999 "));
}

TEST_CASE("numbers that mean nothing are the caller's mistake") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinite = std::numeric_limits<double>::infinity();
  const std::vector<double> fine(4, 0.1);
  const auto refused = [](const auto& found) {
    return !found.has_value() && found.why().code == errc::usage;
  };
  for (const double bad : {nan, infinite, -0.1}) {
    const std::vector<double> poor{0.1, bad, 0.1};
    CAPTURE(bad);
    REQUIRE(refused(gradient_responses(poor, {})));
    REQUIRE(refused(plan_displacement(poor, goal_of(0.1))));
    REQUIRE(refused(plan_displacement(fine, goal_of(bad))));
    REQUIRE(refused(gradient_responses(fine, {bad, 0, false})));
    REQUIRE(refused(gradient_responses(fine, {0.5, bad, false})));
    for (double displacement_goal::*const member :
         {&displacement_goal::probability, &displacement_goal::clip, &displacement_goal::tolerance,
          &displacement_goal::miss_rate}) {
      displacement_goal goal = goal_of(0.1);
      goal.*member = bad;
      REQUIRE(refused(plan_displacement(fine, goal)));
    }
  }
  REQUIRE(refused(gradient_responses(fine, {1, 0, false})));
  REQUIRE(refused(gradient_responses(fine, {0, 0, true})));
  REQUIRE(refused(gradient_responses(fine, {0.5, 0.5, true})));
  REQUIRE(refused(plan_displacement({}, goal_of(0.1))));
  REQUIRE(refused(plan_displacement(fine, goal_of(0))));
  REQUIRE(refused(plan_displacement(fine, goal_of_steps(0))));
  REQUIRE(refused(plan_displacement(fine, goal_of_steps(5))));
  REQUIRE(plan_displacement(fine, goal_of_steps(4)).has_value());
  displacement_goal goal = goal_of(0.1);
  goal.steps_at_risk = 1;
  REQUIRE(refused(plan_displacement(fine, goal)));
  goal.displacement = goal.steps_at_risk = std::nullopt;
  REQUIRE(refused(plan_displacement(fine, goal)));
  goal = goal_of(0.1);
  goal.clip = 0;
  REQUIRE(refused(plan_displacement(fine, goal)));
  goal = goal_of(0.1);
  goal.miss_rate = 1;
  REQUIRE(refused(plan_displacement(fine, goal)));
  for (const double certain : {0.0, 1.0}) {
    goal = goal_of(0.1);
    goal.probability = certain;
    REQUIRE(refused(plan_displacement(fine, goal)));
  }
  const std::vector<double> vast(4, 1e308);
  REQUIRE(refused(plan_displacement(vast, goal_of(0.1))));
}

TEST_CASE("a plan allocates its probabilities and nothing else that grows") {
  const std::vector<double> rates(1'000'000, 0.1);
  const std::size_t once = rates.size() * sizeof(double) + 65'536;
  std::vector<double> responses;
  {
    const potl_test::allocation_counter counter;
    responses = gradient_responses(rates, {0.9, 0, false}).value();
    REQUIRE(counter.peak() <= once);
  }
  for (const displacement_goal& goal : {goal_of(5), goal_of_steps(1000)}) {
    const potl_test::allocation_counter counter;
    REQUIRE(plan_displacement(responses, goal)->probabilities.size() == rates.size());
    REQUIRE(counter.peak() <= once);
  }
}

TEST_CASE("one unit more than a sample leaves open would have been met") {
  const auto left = unseen(248, 12, 2.5, 0.95);
  REQUIRE(detection_without_replacement(248, left.units, 12) < 0.95);
  REQUIRE(detection_without_replacement(248, left.units + 1, 12) >= 0.95);
  REQUIRE(left.displacement == 2.5 * static_cast<double>(left.units));
  REQUIRE(unseen(248, 0, 1, 0.95).units == 248);
  REQUIRE(unseen(248, 248, 1, 0.95).units == 0);
  REQUIRE(unseen(0, 0, 1, 0.95).units == 0);
}

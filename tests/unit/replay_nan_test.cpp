// SPDX-License-Identifier: Apache-2.0
// What is not a number never ends in acceptance, wherever it comes from.
#include "catch.hpp"

#include <limits>
#include <string>
#include <vector>

#include "replay_fixture.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();

/// Every segment ends in other bits, well within the noise: accepted before a test changes it.
struct scene {
  fake_run run;
  replay_options options = near();
  std::vector<segment_measurement> measured;

  scene() {
    run.distance = 1000;  // an interpolation is not at stake
    const auto plan = plan_replay(run.view, options, nonce_of(1));
    for (const auto& request : plan.value()) {
      segment_measurement one = honest(run, request);
      one.digest_equal = false;
      one.distances = groups(1e-4, 1e-4, 1e-4);
      one.noise.assign(2, one.distances);
      one.noise_losses.assign(2, one.losses);
      one.other_arithmetic = true;
      measured.push_back(one);
    }
  }
  std::vector<finding> judge() const {
    return judge_replay(run.view, options, nonce_of(1), measured).value();
  }
  bool passes() const {
    const auto found = judge();
    return count(found, outcome::reject) + count(found, outcome::inconclusive) == 0;
  }
  group_distance& distance(std::size_t which) { return measured[3].distances[which]; }
  group_distance& noise(std::size_t which) { return measured[3].noise[1][which]; }
};

}  // namespace

TEST_CASE("the scene of these tests passes as it is") { REQUIRE(scene().passes()); }

TEST_CASE("a distance that is no number rejects although the driver calls it finite") {
  for (const std::size_t which : {0u, 1u, 2u}) {
    for (const double bad : {not_a_number, infinite}) {
      scene one;
      one.distance(which).l2 = bad;
      INFO(which << " " << bad);
      REQUIRE(count(one.judge(), outcome::reject) > 0);
    }
  }
}

TEST_CASE("a single tensor's distance that is no number rejects") {
  scene one;
  one.distance(0).tensors = {{"model/parameters/w", 1, not_a_number, not_a_number, 0, 1, 1, false}};
  REQUIRE(count(one.judge(), outcome::reject) == 1);
}

TEST_CASE("an update that is no number buys no tolerance") {
  for (const double bad : {not_a_number, infinite}) {
    scene one;
    one.distance(0).l2 = one.distance(0).excess_l2 = 1e6;
    one.distance(0).update_l2 = one.distance(0).replayed_update_l2 = bad;
    REQUIRE(count(one.judge(), outcome::reject) > 0);
  }
}

TEST_CASE("an update of which one side is no number is no measure") {
  for (const double bad : {not_a_number, infinite}) {
    scene recorded, replayed;
    recorded.distance(0).update_l2 = bad;
    replayed.distance(0).replayed_update_l2 = bad;
    CAPTURE(bad);
    CHECK_FALSE(recorded.passes());
    CHECK_FALSE(replayed.passes());
  }
}

TEST_CASE("in exact arithmetic a distance that is no number rejects") {
  scene one;
  one.options.tolerance = "exact";
  for (auto& segment : one.measured) segment.distances = groups(0);
  one.distance(2).l2 = not_a_number;
  REQUIRE(count(one.judge(), outcome::reject, "replay.optimizer") == 1);
}

TEST_CASE("published tolerances reject what is no number") {
  for (const double bad : {not_a_number, infinite}) {
    scene one;
    one.options.tolerance = "mean_grad_norm";
    for (auto& segment : one.measured) segment.gradient_norm_mean = 1;
    REQUIRE(count(one.judge(), outcome::reject) == 0);
    one.distance(0).l2 = bad;
    REQUIRE(count(one.judge(), outcome::reject) == 1);
    one.distance(0).l2 = 1e-4;
    one.measured[3].gradient_norm_mean = bad;
    REQUIRE(count(one.judge(), outcome::reject) == 1);
  }
}

TEST_CASE("noise that is no number is inconclusive") {
  for (const std::size_t which : {0u, 1u, 2u}) {
    for (const double bad : {not_a_number, infinite}) {
      scene one;
      one.noise(which).l2 = bad;
      INFO(which << " " << bad);
      REQUIRE(count(one.judge(), outcome::reject) == 0);
      REQUIRE(count(one.judge(), outcome::inconclusive, "transcript.finite") == 1);
    }
  }
}

TEST_CASE("a repeat with values that are not finite is inconclusive whatever its norm says") {
  scene flagged, tensor;
  flagged.noise(0).finite = false;
  REQUIRE(count(flagged.judge(), outcome::inconclusive, "transcript.finite") == 1);
  tensor.noise(0).tensors = {{"model/parameters/w", 1, not_a_number, not_a_number, 0, 1, 1, false}};
  REQUIRE(count(tensor.judge(), outcome::inconclusive, "transcript.finite") == 1);
}

TEST_CASE("noise that is no number neither excuses nor accuses a distance beyond the cap") {
  scene one;
  one.distance(0).l2 = one.distance(0).excess_l2 = 0.5;
  one.noise(0).l2 = not_a_number;
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive, "transcript.finite") == 1);
}

TEST_CASE("a loss of a repeat that is no number is inconclusive") {
  scene one;
  one.measured[3].noise_losses[1][2] = not_a_number;
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive, "transcript.finite") == 1);
}

TEST_CASE("a way travelled that is no number does not pass for a long one") {
  scene one;
  for (const double bad : {not_a_number, infinite}) {
    one.run.distance = bad;
    REQUIRE(count(one.judge(), outcome::inconclusive, "replay.interpolation_guard") == 1);
  }
}

TEST_CASE("an opened state that is not finite is undecided though the replay ends in its bits") {
  scene one;
  one.measured[3].digest_equal = true;
  one.measured[3].not_finite = "model/parameters/w holds NaN";
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive, "transcript.finite") == 1);
  const rule_off off("transcript.finite");
  REQUIRE(one.passes());
}

TEST_CASE("a loss that is finite on one side alone rejects") {
  for (const double bad : {not_a_number, infinite}) {
    scene logged, replayed, both;
    double& record = logged.run.records[95].loss;
    segment_measurement& last = replayed.measured.back();
    last.losses.back() = bad;
    for (auto& repeat : last.noise_losses) repeat.back() = bad;
    record = bad;
    INFO(bad);
    REQUIRE(count(logged.judge(), outcome::reject, "transcript.finite") == 1);
    REQUIRE(count(replayed.judge(), outcome::reject, "transcript.finite") == 1);
  }
}

TEST_CASE("what the replay makes not finite as well accuses nobody, and is not accepted") {
  scene loss, state;
  loss.run.records[95].loss = not_a_number;
  loss.measured.back().losses[95 - loss.measured.back().request.start] = infinite;
  group_distance& group = state.distance(0);
  group.finite = false;
  group.l2 = group.update_l2 = group.replayed_update_l2 = not_a_number;
  for (const scene* one : {&loss, &state}) {
    REQUIRE(count(one->judge(), outcome::reject) == 0);
    REQUIRE(count(one->judge(), outcome::inconclusive, "transcript.finite") == 1);
  }
  // In exact arithmetic it would be the same bits.
  state.options.tolerance = "exact";
  REQUIRE(count(state.judge(), outcome::reject, "transcript.finite") == 1);
}

TEST_CASE("other bits accuse only where all is finite, because those of a NaN are the machine's") {
  scene one;
  one.options.tolerance = "exact";
  for (segment_measurement& other : one.measured) other.digest_equal = true;
  segment_measurement& other = one.measured[3];
  other.digest_equal = false;
  other.distances = groups(0, 0, 0);
  other.noise.clear();
  other.noise_losses.clear();
  REQUIRE(count(one.judge(), outcome::reject, "replay.parameters") == 1);
  other.not_finite = "model/parameters/w holds NaN";
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive, "transcript.finite") == 1);
  other.distances = groups(1e-4, 0, 0);
  REQUIRE(count(one.judge(), outcome::reject, "replay.parameters") == 1);
  // No state to compare with was stored.
  other.distances.clear();
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  other.not_finite.clear();
  REQUIRE(count(one.judge(), outcome::reject, "replay.parameters") == 1);
}

TEST_CASE("what only some honest repeats have finite accuses nobody") {
  scene logged, replayed, state;
  logged.run.records[95].loss = not_a_number;
  segment_measurement& last = logged.measured.back();
  last.noise_losses[1][95 - last.request.start] = infinite;
  replayed.measured.back().losses.back() = not_a_number;
  state.distance(0).finite = state.noise(0).finite = false;
  state.distance(0).l2 = state.distance(0).update_l2 = not_a_number;
  for (scene* one : {&logged, &replayed, &state}) {
    REQUIRE(count(one->judge(), outcome::reject) == 0);
    REQUIRE(count(one->judge(), outcome::inconclusive, "transcript.finite") == 1);
    one->options.tolerance = "exact";
    REQUIRE(count(one->judge(), outcome::reject, "transcript.finite") > 0);
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <cmath>

#include "replay_fixture.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

struct scene {
  fake_run run{100};
  replay_options options = near();
  std::vector<segment_measurement> measured;

  scene() {
    const auto plan = plan_replay(run.view, options, nonce_of(1));
    for (const auto& request : plan.value()) measured.push_back(honest(run, request));
  }
  std::vector<finding> judge() const {
    return judge_replay(run.view, options, nonce_of(1), measured).value();
  }
};

}  // namespace

TEST_CASE("every loss of a segment is compared, the first and the last too") {
  const std::size_t length = scene().measured[2].losses.size();
  REQUIRE(length > 2);
  for (std::size_t at = 0; at < length; ++at) {
    scene one;
    segment_measurement& off = one.measured[2];
    off.noise_losses.assign(2, off.losses);
    off.noise.assign(2, {});
    off.other_arithmetic = true;
    off.losses[at] += 0.5;
    for (auto& repeat : off.noise_losses) repeat[at] += 0.5;
    INFO(at);
    REQUIRE(count(one.judge(), outcome::reject, "loss.recomputed") == 1);
  }
}

TEST_CASE("a loss in exact arithmetic has no tolerance") {
  for (const bool exact : {false, true}) {
    scene one;
    if (exact) one.run.view.agreed.arithmetic = "ord32";
    double& loss = one.measured[2].losses[1];
    loss = std::nextafter(loss, 2.0);
    REQUIRE(count(one.judge(), outcome::reject, "loss.recomputed") == (exact ? 1 : 0));
  }
}

TEST_CASE("whether gradients were finite is compared in exact arithmetic, where it is known") {
  constexpr auto flag = static_cast<std::uint32_t>(transcript::step_flag::non_finite);
  for (const bool exact : {false, true}) {
    for (const bool known : {false, true}) {
      for (const bool recorded : {false, true}) {
        scene one;
        if (exact) one.run.view.agreed.arithmetic = "ord32";
        segment_measurement& off = one.measured[2];
        if (known) off.finite.assign(off.losses.size(), true);
        if (known && !recorded) off.finite[1] = false;
        if (recorded) one.run.records[off.request.start + 1].flags |= flag;
        one.run.link();
        INFO(exact << known << recorded);
        const auto rejections = count(one.judge(), outcome::reject, "transcript.finite");
        REQUIRE(rejections == (exact && known ? 1 : 0));
      }
    }
  }
}

TEST_CASE("more losses than steps are no measurement") {
  for (const int more : {-1, 1}) {
    scene one;
    auto& losses = one.measured[2].losses;
    losses.resize(losses.size() + static_cast<std::size_t>(more));
    REQUIRE(count(one.judge(), outcome::inconclusive) == 1);
  }
}

TEST_CASE("a loss that rough sums turn is excused where it would be doubtful") {
  const auto judged = [](double off, double rough) {
    scene one;
    segment_measurement& measured = one.measured[2];
    measured.noise_losses.assign(2, measured.losses);
    measured.rough_losses.assign(2, measured.losses);
    measured.noise.assign(2, {});
    measured.other_arithmetic = true;
    measured.losses[1] += off;
    for (auto& repeat : measured.noise_losses) repeat[1] += off;
    measured.rough_losses[1][1] += off + rough;
    measured.rough_losses[0] = measured.losses;
    const auto found = one.judge();
    if (count(found, outcome::reject, "loss.recomputed") > 0) return "rejected";
    return count(found, outcome::inconclusive) > 0 ? "inconclusive" : "accepted";
  };
  const std::string doubtful = judged(0.01, 0);
  REQUIRE(doubtful == "inconclusive");
  REQUIRE(judged(0.01, 0.002) == std::string("accepted"));
  REQUIRE(judged(0.01, 0.0001) == std::string("inconclusive"));
  REQUIRE(judged(0.01, std::nan("")) == std::string("inconclusive"));
  REQUIRE(judged(0.5, 0.4) == std::string("rejected"));
}

TEST_CASE("rough sums excuse no loss whose noise is not known") {
  scene one;
  segment_measurement& measured = one.measured[2];
  measured.noise_losses.assign(2, measured.losses);
  measured.rough_losses.assign(2, measured.losses);
  measured.noise.assign(2, {});
  measured.noise_losses[0][1] = std::nan("");
  REQUIRE(count(one.judge(), outcome::inconclusive) > 0);
}

TEST_CASE("a skip that honest repeats turn too is doubtful, with all that follows it") {
  const auto judged = [](const std::vector<std::vector<bool>>& repeats, bool known = true) {
    scene one;
    segment_measurement& measured = one.measured[2];
    measured.digest_equal = false;
    measured.skipped[2] = true;
    measured.losses[3] += 1;
    measured.distances.resize(4);  // without names: whoever looks for them finds none
    if (known) measured.noise.assign(2, {});
    measured.noise_losses.assign(known ? 2 : 0, measured.losses);
    measured.other_arithmetic = true;
    for (const auto& repeat : repeats) {
      measured.repeat_skipped.push_back(repeat);
      measured.repeat_skipped.back().resize(measured.skipped.size());
    }
    return one.judge();
  };
  for (const auto& doubtful : {judged({{0, 0, 1}, {0, 0, 0}}), judged({{0, 0, 1}, {0, 1, 1}}),
                               judged({{0, 0, 1}}, false)}) {
    REQUIRE(count(doubtful, outcome::reject) == 0);
    REQUIRE(count(doubtful, outcome::inconclusive, "replay.optimizer") == 1);
    REQUIRE(count(doubtful, outcome::inconclusive) == 1);
  }
  for (const auto& lie : {judged({{0, 0, 1}, {0, 0, 1}}), judged({{0, 0, 1, 1}, {0, 0, 1}})}) {
    REQUIRE(count(lie, outcome::reject, "replay.optimizer") == 1);
  }
}

TEST_CASE("the noise of a segment with another skip is asked for, rough sums included") {
  scene one;
  segment_measurement& measured = one.measured[2];
  measured.digest_equal = false;
  measured.skipped[2] = true;
  measured.distances.resize(4);
  measured.distances[2].structure_equal = false;  // the scaler counts otherwise from there on
  const auto asked = plan_noise(one.run.view, one.options, one.measured);
  REQUIRE(std::any_of(asked.begin(), asked.end(), [&](const segment_request& each) {
    return each.start == measured.request.start && each.noise_repeats > 0 && each.rough_repeats > 0;
  }));
}

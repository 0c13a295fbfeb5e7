// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "replay_fixture.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// A tensor of `count` elements that the segment moves by 1.
tensor_distance tensor(const std::string& path, double off, double count = 1) {
  return {path, count, off, off, 1e-6, 1, 1, false};
}

/// An honest machine of another kind: the end differs as much as the verifier's own repeats.
void differ(segment_measurement& one, double by = 1e-4, double noise = 1e-4) {
  one.digest_equal = false;
  one.distances = groups(by);
  one.noise.assign(2, groups(noise, noise, noise));
  one.noise_losses.assign(2, one.losses);
  one.other_arithmetic = true;
}

struct scene {
  fake_run run;
  replay_options options = near();
  std::vector<segment_measurement> measured;

  explicit scene(std::uint64_t steps = 100) : run(steps) { ask(); }
  void ask() {
    measured.clear();
    const auto plan = plan_replay(run.view, options, nonce_of(1));
    for (const auto& one : plan.value()) measured.push_back(honest(run, one));
  }
  std::vector<finding> judge() const {
    return judge_replay(run.view, options, nonce_of(1), measured).value();
  }
};

using change = std::function<void(scene&)>;

/// The finding is there, and it goes when that rule, and none of the others, is switched off.
void rejects_for(std::string_view rule, const change& cheat) {
  scene one;
  cheat(one);
  INFO(rule);
  REQUIRE(count(one.judge(), outcome::reject, rule) > 0);
  for (const rule_info& other : rules) {
    if (other.id == rule || other.id == "replay.random_segments") continue;
    // These two change what a distance is compared with, or stop comparing it.
    if (other.id == "replay.parameters" || other.id == "replay.update_relative" ||
        other.id == "replay.magnitude") {
      continue;
    }
    const rule_off off(other.id);
    INFO("off: " << other.id);
    REQUIRE(count(one.judge(), outcome::reject, rule) > 0);
  }
  const rule_off off(rule);
  for (const auto& found : one.judge()) INFO(found.rule << ": " << found.reason);
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive) == 0);
}

}  // namespace

TEST_CASE("segments that end in the recorded bits pass at statistic 0") {
  const auto findings = scene().judge();
  REQUIRE(count(findings, outcome::reject) == 0);
  REQUIRE(count(findings, outcome::inconclusive) == 0);
  for (const auto& one : findings) {
    if (one.rule == "replay.parameters") REQUIRE(one.statistic == 0.0);
  }
}

TEST_CASE("an honest machine of another kind is within the calibrated tolerance") {
  scene one;
  for (auto& segment : one.measured) differ(segment);
  const auto findings = one.judge();
  REQUIRE(count(findings, outcome::reject) == 0);
  REQUIRE(count(findings, outcome::inconclusive) == 0);
  REQUIRE(count(findings, outcome::pass, "replay.interpolation_guard") == 1);
}

TEST_CASE("parameters far from their replay reject") {
  rejects_for("replay.parameters", [](scene& one) { differ(one.measured[3], 5); });
}

TEST_CASE("a step small against the weights rejects because it is compared with the update") {
  rejects_for("replay.update_relative", [](scene& one) { differ(one.measured[3], 0.9); });
}

TEST_CASE("an update in the right direction of another length rejects") {
  rejects_for("replay.magnitude", [](scene& one) {
    differ(one.measured[3], 0.8);
    one.measured[3].distances[0].cosine = 1;
  });
}

TEST_CASE("optimizer state that differs rejects") {
  rejects_for("replay.optimizer", [](scene& one) {
    differ(one.measured[3]);
    one.measured[3].distances = groups(0, 0, 0.9);
  });
}

TEST_CASE("a counter that differs rejects with the optimizer's rule") {
  rejects_for("replay.optimizer", [](scene& one) {
    differ(one.measured[3]);
    one.measured[3].distances[3].structure_equal = false;
  });
}

TEST_CASE("a single moment that is off rejects although the group's norm is fine") {
  rejects_for("replay.optimizer", [](scene& one) {
    differ(one.measured[3]);
    one.measured[3].distances[2].tensors = {tensor("optimizers/0/v", 0.9)};
  });
}

TEST_CASE("buffers that differ reject") {
  rejects_for("replay.buffers", [](scene& one) {
    differ(one.measured[3]);
    one.measured[3].distances = groups(0, 0.9, 0);
  });
}

TEST_CASE("a NaN in a state rejects") {
  rejects_for("transcript.finite", [](scene& one) {
    differ(one.measured[3]);
    auto& bad = one.measured[3].distances[0];
    bad.finite = false;
    bad.l1 = bad.l2 = bad.linf = bad.cosine = bad.update_l2 = bad.weight_l2 = not_a_number;
    bad.worst_relative = not_a_number;
    bad.tensors = {tensor("model/parameters/w", not_a_number)};
  });
}

TEST_CASE("a NaN in a logged loss rejects") {
  rejects_for("transcript.finite", [](scene& one) { one.run.records[95].loss = not_a_number; });
}

TEST_CASE("an invented loss rejects even where the state is equal bit for bit") {
  rejects_for("loss.recomputed", [](scene& one) {
    one.run.records[95].loss += 0.1;
    auto& last = one.measured.back();
    last.noise_losses.assign(2, last.losses);
    last.noise.assign(2, groups(0));
    last.other_arithmetic = true;
  });
}

TEST_CASE("a loss that is off is inconclusive while the noise was not measured, and near it") {
  scene one;
  auto& last = one.measured.back();
  one.run.records[95].loss += 0.1;
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive, "loss.recomputed") == 1);
  last.noise.assign(2, groups(0));
  last.noise_losses.assign(2, last.losses);
  last.noise_losses[0][5] += 1e-3;  // 8 x 8 of it are no accusation
  last.other_arithmetic = true;
  one.run.records[95].loss = last.losses[5] + 0.06;
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive, "loss.recomputed") == 1);
  one.run.records[95].loss = last.losses[5] + 0.07;
  REQUIRE(count(one.judge(), outcome::reject, "loss.recomputed") == 1);
}

TEST_CASE("a learning rate that the replay did not use rejects") {
  rejects_for("agreed.recipe", [](scene& one) { one.run.records[95].rates = {0.2}; });
}

TEST_CASE("a learning rate that steps compute may be off by rounding, and accuses nobody") {
  const auto verdict = [](double rate, const char* arithmetic) {
    scene one;
    one.run.view.agreed.rates.clear();
    one.run.view.agreed.arithmetic = arithmetic;
    one.run.records[95].rates = {rate};
    one.run.link();
    const auto found = one.judge();
    if (count(found, outcome::reject, "agreed.recipe") > 0) return std::string("rejected");
    const bool doubtful = count(found, outcome::inconclusive, "agreed.recipe") > 0;
    return std::string(doubtful ? "inconclusive" : "accepted");
  };
  CHECK(verdict(0.1 + 1e-8, "stock") == "accepted");
  CHECK(verdict(0.2, "stock") == "inconclusive");
  CHECK(verdict(std::nan(""), "stock") == "inconclusive");
  CHECK(verdict(0.1 + 1e-8, "ord32") == "rejected");
}

TEST_CASE("an update that only the record says was skipped rejects") {
  rejects_for("replay.optimizer", [](scene& one) { one.run.records[95].flags = 1; });
}

TEST_CASE("what is withheld rejects") {
  rejects_for("transcript.withheld",
              [](scene& one) { one.measured[3].status = measured::withheld; });
}

TEST_CASE("a checkpoint that does not hash to its leaf rejects") {
  rejects_for("transcript.checkpoint",
              [](scene& one) { one.measured[3].status = measured::tampered; });
}

TEST_CASE("a recorded state that cannot be run rejects") {
  rejects_for("transcript.checkpoint",
              [](scene& one) { one.measured[3].status = measured::prover_error; });
}

TEST_CASE("superseded steps with another loss reject") {
  rejects_for("transcript.resume", [](scene& one) {
    one.run.ranges = {{0, 40, 46, 0}};
    for (std::uint64_t step = 41; step <= 46; ++step) {
      one.run.superseded.push_back(one.run.records[step - 1]);
    }
    one.run.link();
    one.ask();
    one.run.superseded[2].loss += 0.5;
    one.run.link();
    for (auto& each : one.measured) {
      each.noise.assign(2, groups(0));
      each.noise_losses.assign(2, each.losses);
      each.other_arithmetic = true;
    }
  });
}

TEST_CASE("superseded steps that end in another state reject where arithmetic is exact") {
  scene one;
  one.run.view.agreed.arithmetic = "ord32";
  one.run.ranges = {{0, 40, 46, 0}};
  for (std::uint64_t step = 41; step <= 46; ++step) {
    one.run.superseded.push_back(one.run.records[step - 1]);
  }
  one.run.superseded.back().state = nonce_of(9);
  one.run.link();
  one.ask();
  const auto replaced = std::find_if(one.measured.begin(), one.measured.end(),
                                     [](const auto& each) { return each.request.superseded; });
  REQUIRE(replaced != one.measured.end());
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  replaced->digest_equal = false;
  REQUIRE(count(one.judge(), outcome::reject, "transcript.resume") == 1);
  replaced->not_finite = "model/parameters/w holds NaN";
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  replaced->not_finite.clear();
  one.run.view.agreed.arithmetic = "stock";
  REQUIRE(count(one.judge(), outcome::reject) == 0);
}

TEST_CASE("a distance beyond the cap that honest repeats explain is no evidence") {
  scene one;
  for (auto& segment : one.measured) differ(segment, 0.3, 0.2);
  one.run.distance = 1000;
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive, "replay.tolerance_cap") > 0);
  for (auto& segment : one.measured) differ(segment, 0.8, 0.002);
  REQUIRE(count(one.judge(), outcome::reject) > 0);
  const rule_off off("replay.tolerance_cap");
  for (auto& segment : one.measured) differ(segment, 0.3, 0.2);
  REQUIRE(count(one.judge(), outcome::inconclusive) == 0);
}

TEST_CASE("noise that grew with the weights carries no distance beyond the cap") {
  scene one;
  one.run.distance = 1000;  // an interpolation is not at stake here
  for (auto& segment : one.measured) {
    differ(segment, 0.3, 1e-6);
    segment.distances[0].excess_l2 = 0;
    segment.distances[0].rounding_l2 = 1;
  }
  REQUIRE(count(one.judge(), outcome::inconclusive, "replay.tolerance_cap") > 0);
  const rule_off off("replay.tolerance_cap");
  REQUIRE(count(one.judge(), outcome::inconclusive) + count(one.judge(), outcome::reject) == 0);
}

TEST_CASE("a distance within cap and noise passes, however large the noise is") {
  scene one;
  differ(one.measured[3], 0.05, 0.2);
  one.run.distance = 1000;
  REQUIRE(count(one.judge(), outcome::inconclusive) == 0);
}

TEST_CASE("tolerances that add up to the way travelled are not judged by") {
  scene one;
  one.run.distance = 1e-5;  // 1e-3 in all; each of 10 segments may be off by 8e-4
  for (auto& segment : one.measured) differ(segment);
  REQUIRE(count(one.judge(), outcome::inconclusive, "replay.interpolation_guard") == 1);
  const rule_off off("replay.interpolation_guard");
  REQUIRE(count(one.judge(), outcome::inconclusive) == 0);
}

TEST_CASE(
    "a way travelled that is not known is inconclusive, unless the rule that says why is off") {
  for (const auto& [code, rule] : {std::pair{errc::missing, "transcript.withheld"},
                                   {errc::mismatch, "transcript.checkpoint"}}) {
    scene one;
    for (auto& segment : one.measured) differ(segment);
    one.run.view.parameter_distance = [code = code](auto, auto) {
      return result<double>(error{code, "not there", ""});
    };
    REQUIRE(count(one.judge(), outcome::inconclusive) == 1);
    const rule_off off(rule);
    REQUIRE(count(one.judge(), outcome::inconclusive) == 0);
  }
}

TEST_CASE("equal bits need no tolerance, however short the way") {
  scene one;
  one.run.distance = 0;
  REQUIRE(count(one.judge(), outcome::inconclusive) == 0);
}

TEST_CASE("exact arithmetic tolerates nothing") {
  scene one;
  one.run.view.agreed.arithmetic = "ord32";
  differ(one.measured[3], 1e-12);
  REQUIRE(count(one.judge(), outcome::reject, "replay.parameters") == 1);
}

TEST_CASE("exact arithmetic rejects another end state even where none is stored to compare with") {
  rejects_for("replay.parameters", [](scene& one) {
    one.run.view.agreed.arithmetic = "ord32";
    one.measured[3].digest_equal = false;
  });
}

TEST_CASE("exact arithmetic tolerates no other counter, which is in no norm") {
  scene one;
  one.run.view.agreed.arithmetic = "ord32";
  differ(one.measured[3], 0);
  one.measured[3].distances[2].tensors = {tensor("optimizers/0/step", 1)};
  REQUIRE(count(one.judge(), outcome::reject, "replay.optimizer") == 1);
}

TEST_CASE("exact arithmetic does not tolerate other bits of equal values") {
  scene one;
  one.options.tolerance = "exact";
  differ(one.measured[3], 0);
  REQUIRE(count(one.judge(), outcome::reject, "replay.parameters") == 1);
}

TEST_CASE("a request without a measurement is inconclusive") {
  scene one;
  one.measured.erase(one.measured.begin() + 3);
  REQUIRE(count(one.judge(), outcome::inconclusive) == 2);  // it, and the count of random ones
}

TEST_CASE("a replay of other steps, or of a branch, does not answer a request") {
  const auto cut = [](segment_measurement& one, bool front) {
    for (int i = 0; i < 5; ++i) {
      one.losses.erase(front ? one.losses.begin() : one.losses.end() - 1);
      one.rates.pop_back();
      one.skipped.pop_back();
    }
    if (front) {
      one.request.start += 5;
    } else {
      one.request.end -= 5;
    }
  };
  for (const bool front : {true, false}) {
    scene one;
    cut(one.measured[3], front);
    INFO(front);
    REQUIRE(count(one.judge(), outcome::inconclusive) == 2);  // it, and the count of random ones
  }
  scene one;
  one.run.ranges = {{2, 40, 50, 0}, {3, 40, 50, 0}};
  for (int branch = 2; branch <= 3; ++branch) {
    for (std::uint64_t step = 41; step <= 50; ++step) {
      one.run.superseded.push_back(one.run.records[step - 1]);
    }
  }
  one.run.link();
  one.ask();
  REQUIRE(count(one.judge(), outcome::inconclusive) == 0);
  const std::vector<segment_measurement> all = one.measured;
  const auto without = [&](auto which) {
    one.measured = all;
    std::erase_if(one.measured, which);
    REQUIRE(one.measured.size() + 1 == all.size());
    return count(one.judge(), outcome::inconclusive);
  };
  REQUIRE(without([](const auto& each) {
            return each.request.start == 40 && !each.request.superseded;
          }) == 2);
  REQUIRE(without([](const auto& each) { return each.request.branch == 3; }) == 1);
}

TEST_CASE("only a segment without a problem is said to pass") {
  scene one;
  const int all = static_cast<int>(one.measured.size());
  REQUIRE(count(one.judge(), outcome::pass, "replay.parameters") == all);
  one.measured[3].status = measured::verifier_error;
  one.run.records[95].loss += 1;
  REQUIRE(count(one.judge(), outcome::pass, "replay.parameters") == all - 2);
}

TEST_CASE("a measurement of no step is the driver's mistake") {
  scene one;
  one.measured[3].request.end = one.measured[3].request.start;
  REQUIRE(judge_replay(one.run.view, one.options, nonce_of(1), one.measured).why().code ==
          errc::usage);
}

TEST_CASE("the verifier's own trouble is inconclusive, never a rejection") {
  scene one;
  one.measured[3].status = measured::verifier_error;
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive, "replay.random_segments") == 1);
}

TEST_CASE("a driver that returns too few losses gets no verdict") {
  scene one;
  one.measured[3].losses.pop_back();
  REQUIRE(count(one.judge(), outcome::inconclusive) == 1);
}

TEST_CASE("a distance beyond the floor is inconclusive while the noise was not measured") {
  scene one;
  differ(one.measured[3], 0.5);
  one.measured[3].noise.clear();
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive) == 1);
}

TEST_CASE("a missing group of distances is inconclusive") {
  scene one;
  differ(one.measured[3]);
  one.measured[3].distances.pop_back();
  REQUIRE(count(one.judge(), outcome::inconclusive) == 1);
}

TEST_CASE("of what a segment does not move, no difference is accepted") {
  scene one;
  differ(one.measured[3], 1e-6, 0);
  auto& parameters = one.measured[3].distances[0];
  parameters.update_l2 = parameters.replayed_update_l2 = 0;
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  REQUIRE(count(one.judge(), outcome::inconclusive) == 1);
  parameters.l2 = parameters.excess_l2 = 1e-5;
  REQUIRE(count(one.judge(), outcome::reject) == 1);
}

TEST_CASE("a published tolerance judges, but what it judged does not count as replayed") {
  scene one;
  one.options.tolerance = "mean_grad_norm";
  one.run.distance = 1000;
  for (auto& segment : one.measured) {
    differ(segment, 0.9);
    segment.gradient_norm_mean = 1;
  }
  const auto frozen = one.judge();
  REQUIRE(count(frozen, outcome::reject) == 0);
  REQUIRE(count(frozen, outcome::inconclusive, "replay.random_segments") == 1);
  one.measured[3].gradient_norm_mean = 0.5;
  REQUIRE(count(one.judge(), outcome::reject, "replay.parameters") == 1);
}

TEST_CASE("what is in no norm stays open under a published tolerance") {
  scene one;
  one.options.tolerance = "mean_grad_norm";
  one.run.distance = 1000;
  differ(one.measured[3], 0.1);
  one.measured[3].gradient_norm_mean = 1;
  REQUIRE(count(one.judge(), outcome::inconclusive, "replay.parameters") == 0);
  tensor_distance codes;
  codes.path = "model/parameters/codes";
  codes.judged = judged_as::codes;
  codes.l2 = 1;
  one.measured[3].distances[0].tensors.push_back(codes);
  REQUIRE(count(one.judge(), outcome::inconclusive, "replay.parameters") == 1);
}

TEST_CASE("the reference distance of independent runs is used as a hundredth") {
  scene one;
  one.options.tolerance = "d_ref";
  one.options.d_ref = 10;
  one.run.distance = 1000;
  differ(one.measured[3], 0.09);
  REQUIRE(count(one.judge(), outcome::reject) == 0);
  differ(one.measured[3], 0.11);
  REQUIRE(count(one.judge(), outcome::reject) == 1);
}

TEST_CASE("a step that overflowed and was skipped on both sides is no contradiction") {
  scene one;
  one.run.records[95].flags = 1 | 2;
  one.run.records[95].loss = std::numeric_limits<double>::infinity();
  auto& last = one.measured.back();
  last.skipped[5] = true;
  last.losses[5] = not_a_number;
  REQUIRE(count(one.judge(), outcome::reject) == 0);
}

TEST_CASE("the summary says how many random segments were judged") {
  const auto findings = scene(1000).judge();
  for (const auto& one : findings) {
    if (one.rule != "replay.random_segments") continue;
    REQUIRE(one.result == outcome::pass);
    REQUIRE(one.statistic == 12.0);
    REQUIRE(one.reason.find("12 of 12") == 0);
    REQUIRE_FALSE(*one.detail<bool>("all"));
    return;
  }
  FAIL("no summary");
}

TEST_CASE("the summary says whether every segment was judged, drawn or not") {
  scene one;
  one.options.samples = 1;
  one.ask();
  for (std::uint64_t start = 0; start < 100; start += 10) {
    segment_request request;
    request.start = start;
    request.end = start + 10;
    const bool known = std::any_of(one.measured.begin(), one.measured.end(), [&](const auto& had) {
      return had.request.start == start && had.request.end == request.end;
    });
    if (!known) one.measured.push_back(honest(one.run, request));
  }
  const auto all = [&] {
    for (const auto& found : one.judge()) {
      if (found.rule == "replay.random_segments") return *found.detail<bool>("all");
    }
    return false;
  };
  REQUIRE(all());
  one.measured.back().status = measured::verifier_error;
  REQUIRE_FALSE(all());
}

TEST_CASE("options of replay are refused by name when they are unknown or out of range") {
  const auto refused = replay_options::parse(json_value::of({{"sample", 3}})).why();
  REQUIRE(refused.code == errc::usage);
  REQUIRE(refused.message.find("\"sample\"") != std::string::npos);
  REQUIRE(refused.remedy.find("samples") != std::string::npos);
  for (const json_value& wrong :
       {json_value::of({{"samples", -1}}), json_value::of({{"safety", 0.5}}),
        json_value::of({{"tolerance", "loose"}}), json_value::of({{"samples", "many"}}),
        json_value::of({{"repeat", json_value::array{1}}}),
        json_value::of({{"tolerance", "d_ref"}})}) {
    REQUIRE(replay_options::parse(wrong).why().code == errc::usage);
  }
  REQUIRE(replay_options::parse(json_value::of({{"safety", 4}}))->safety == 4);
  REQUIRE(replay_options::parse(nullptr)->samples == 12);
}

TEST_CASE("a rounding log that the auditor rejects is a finding with its proof", "[replay]") {
  scene here;
  rounding_summary seen;
  seen.values = 1000;
  seen.entries = 10;
  for (segment_measurement& one : here.measured) one.rounding = seen;
  CHECK(count(here.judge(), outcome::reject) == 0);
  seen.rejected = 3;
  const std::uint64_t step = here.measured[0].request.start + 1;
  seen.rejections = {{step, "outside_window", "element 7", "cHJvb2Y="}};
  here.measured[0].rounding = seen;
  const auto findings = here.judge();
  REQUIRE(count(findings, outcome::reject, "replay.rounding") == 1);
  CHECK(count(findings, outcome::reject) == 1);
  for (const finding& one : findings) {
    if (one.rule != "replay.rounding") continue;
    CHECK(one.first_step == step);
    CHECK(one.reason.find("outside_window, element 7") != std::string::npos);
    REQUIRE(one.detail<std::string>("proof") != nullptr);
    CHECK(*one.detail<std::string>("proof") == "cHJvb2Y=");
  }
  here.measured[0].rounding->rejections.clear();  // too many to list
  CHECK(count(here.judge(), outcome::reject, "replay.rounding") == 1);
  const rule_off off("replay.rounding");
  CHECK(count(here.judge(), outcome::reject) == 0);
}

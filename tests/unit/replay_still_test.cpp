// SPDX-License-Identifier: Apache-2.0
// Elements without a gradient, and what a step after the segment makes of a state.
#include "catch.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <potl/checks/detail/state_distance.hpp>

#include "replay_fixture.hpp"
#include "state_tree.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

tree::value state_of(tree& held, std::vector<float> weights, std::vector<float> moments) {
  const tree::value kept = tree::dict({{"m", held.floats(moments)}});
  return tree::dict(
      {{"model", tree::dict({{"parameters", tree::dict({{"w", held.floats(weights)}})}})},
       {"optimizers", {tree::list{tree::dict({{"state", tree::dict({{"0", kept}})}})}}}});
}

/// A pass of the run whose segment 3 ends in other bits, with the noise of its own.
struct scene {
  fake_run run{100};
  replay_options options;
  std::vector<segment_measurement> measured;
  segment_measurement* one = nullptr;

  scene() {
    run.distance = 1000;
    options.top_q = 0;
    options.reach = 0;
    const auto plan = plan_replay(run.view, options, nonce_of(1));
    for (const auto& request : plan.value()) measured.push_back(honest(run, request));
    one = &measured[3];
    one->digest_equal = false;
    one->distances = groups(1e-4);
    one->noise.assign(2, groups(1e-4, 1e-4, 1e-4));
    one->noise_losses.assign(2, one->losses);
    one->other_arithmetic = true;
  }
  static tensor_distance still(double off, bool rounding_only = false) {
    return {
        "w where it has no gradient", 10, off, off, 1e-9, 0, 0, rounding_only, judged_as::unmoved};
  }
  void next(double off, double noise) {
    one->distances.push_back(group("next", off));
    for (auto& repeat : one->noise) repeat.push_back(group("next", noise));
  }
  std::string verdict() const {
    const auto found = judge_replay(run.view, options, nonce_of(1), measured).value();
    if (count(found, outcome::reject) > 0) return "rejected";
    return count(found, outcome::inconclusive) > 0 ? "inconclusive" : "accepted";
  }
};

}  // namespace

TEST_CASE("elements without a gradient have norms of their own, and count once in their group") {
  tree held;
  const auto start = state_of(held, {1, 2, 3, 4}, {0, 0, 0, 0});
  const auto recorded = state_of(held, {1, 2.5, 3, 9}, {0, 0.5, 0, 0});
  const auto replayed = state_of(held, {1, 2, 3, 6}, {0, 0, 0, 0});
  const std::vector<still_elements> still{
      {{"model/parameters/w", "optimizers/0/state/0"}, {1, 1, 1, 0}}};
  const auto groups = compare_states(start, recorded, replayed, still);
  CHECK(groups[0].l2 == Approx(std::hypot(0.5, 3)));
  CHECK(groups[0].count == 4);
  CHECK(groups[0].worst_tensor == "model/parameters/w");
  REQUIRE(groups[0].tensors.size() == 2);
  const tensor_distance& own = groups[0].tensors[1];
  CHECK(own.path == "model/parameters/w where it has no gradient");
  CHECK((own.judged == judged_as::unmoved && !own.rounding_only));
  CHECK(own.count == 3);
  CHECK(own.l2 == 0.5);
  CHECK(own.excess == 0.5);
  REQUIRE(groups[2].tensors.size() == 2);
  CHECK(groups[2].tensors[1].path == "optimizers/0/state/0/m where it has no gradient");
  CHECK(groups[2].tensors[1].l2 == 0.5);
}

TEST_CASE("elements without a gradient are named where others of their tensor are off") {
  tree held;
  const auto before = state_of(held, {1, 2}, {0, 0}), after = state_of(held, {1, 3}, {0, 0});
  const std::vector<still_elements> still{{{"model/parameters/w", "optimizers/0/state/0"}, {1, 0}}};
  const auto groups = compare_states(before, after, before, still);
  REQUIRE(groups[0].tensors.size() == 2);
  CHECK((groups[0].tensors[1].judged == judged_as::unmoved && groups[0].tensors[1].l2 == 0));
  CHECK(groups[2].tensors.empty());
}

TEST_CASE("a mask of another size is of another tensor") {
  tree held;
  const auto before = state_of(held, {1, 2}, {0, 0}), after = state_of(held, {1, 3}, {0, 1});
  const std::vector<still_elements> still{{{"model/parameters/w"}, {1, 1, 1}}};
  CHECK(compare_states(before, after, before, still)[0].tensors.size() == 1);
}

TEST_CASE("one last bit in a million elements without a gradient is rounding, one in ten is not") {
  tree held;
  for (const auto& [size, rounding] : {std::pair{1'000'000UL, true}, {10UL, false}}) {
    CAPTURE(size);
    std::vector<float> same(size, 1.0f), other = same;
    other[size / 2] = std::nextafter(1.0f, 2.0f);
    const auto before = state_of(held, same, {0});
    const std::vector<still_elements> still{
        {{"model/parameters/w"}, std::vector<std::uint8_t>(size, 1)}};
    const auto all = compare_states(before, state_of(held, other, {0}), before, still);
    CHECK(all[0].tensors.at(1).rounding_only == rounding);
  }
}

TEST_CASE("every element of an average may be off by what each step rounds") {
  tree held;
  const auto off_by = [&](float share, std::uint64_t roundings) {
    const auto before = state_of(held, {1, 0}, {0}), after = state_of(held, {1 + share, 0}, {0});
    const std::vector<still_elements> still{{{"model/parameters/w"}, {1, 1}, roundings}};
    return compare_states(before, after, before, still)[0].tensors.at(1).rounding_only;
  };
  CHECK_FALSE(off_by(0x1p-23F, 0));
  CHECK(off_by(0x1p-22F, 1));
  CHECK_FALSE(off_by(0x1p-21F, 1));
  CHECK(off_by(0x1p-19F, 8));
  CHECK_FALSE(off_by(0x1p-18F, 8));
  CHECK_FALSE(off_by(std::nanf(""), 8));
}

TEST_CASE("an average in half precision is rounded once more, and otherwise almost nowhere") {
  tree held;
  const auto of = [&](std::uint16_t bits) {
    return tree::dict({{"ema", held.tensor(dtype::bf16, std::vector<std::uint16_t>{bits})}});
  };
  const std::vector<still_elements> still{{{"ema"}, {1}, 8}};
  const auto all = compare_states(of(0x3f80), of(0x3f81), of(0x3f80), still);
  CHECK_FALSE(all[2].tensors.at(1).rounding_only);
}

TEST_CASE("where no gradient is, what others of the tensor may be off excuses nothing") {
  for (const double off : {1e-12, 1e-5, 1e3}) {
    CAPTURE(off);
    scene run;
    run.one->distances[0].tensors.push_back(scene::still(off));
    CHECK(run.verdict() == "inconclusive");
  }
  scene run;
  run.one->distances[2].tensors.push_back(scene::still(1e-9, true));
  CHECK(run.verdict() == "accepted");
}

TEST_CASE("where no gradient is, repeats of the segment excuse what they show there") {
  for (const auto& [off, verdict] : {std::pair{7e-6, "accepted"}, {9e-6, "inconclusive"}}) {
    for (const bool rough : {false, true}) {
      CAPTURE(off, rough);
      scene run;
      run.one->distances[0].tensors.push_back(scene::still(off));
      if (rough) run.one->rough.push_back(groups(0));
      (rough ? run.one->rough : run.one->noise).back()[0].tensors.push_back(scene::still(1e-6));
      CHECK(run.verdict() == verdict);
    }
  }
}

TEST_CASE("where no gradient is but something moves, repeats of others excuse up to the cap") {
  const auto moved = [](double off) {
    tensor_distance out = scene::still(off);
    out.update_l2 = out.replayed_update_l2 = 1;
    return out;
  };
  for (const auto& [off, verdict] :
       {std::pair{0.07, "accepted"}, {0.09, "inconclusive"}, {0.11, "inconclusive"}}) {
    CAPTURE(off);
    scene run;
    run.one->distances[0].tensors.push_back(moved(off));
    run.measured[4].noise.assign(1, groups(0));
    run.measured[4].noise[0][0].tensors.push_back(moved(off < 0.1 ? 0.01 : 1));
    CHECK(run.verdict() == verdict);
  }
}

TEST_CASE("elements without a gradient are none of the tensors that are noise at first") {
  const tensor_distance loud{"w", 100, 0.5, 0.5, 1e-9, 1, 1};
  tensor_distance still = scene::still(0.5);
  still.count = 900;
  scene run;
  run.measured[0].noise.assign(1, groups(0.5));
  run.measured[0].noise[0][0].tensors = {loud, still};
  run.one->distances[0].tensors = {loud};
  run.one->distances[0].l2 = run.one->distances[0].excess_l2 = 0.5;
  CHECK(run.verdict() == "accepted");
}

TEST_CASE("where all of a tensor is noise at first, so is what has no gradient for once") {
  const tensor_distance loud{"w", 100, 0.5, 0.5, 1e-9, 1, 1};  // 0.05 of one element
  const auto verdict = [&](double off, const std::vector<tensor_distance>& first) {
    scene run;
    run.measured[0].noise.assign(1, groups(0.5));
    run.measured[0].noise[0][0].tensors = first;
    run.one->distances[0].tensors.push_back(scene::still(off));  // of 10 elements
    return run.verdict();
  };
  CHECK(verdict(1.2, {loud}) == "accepted");
  CHECK(verdict(1.3, {loud}) == "inconclusive");
  // Others that had none at first show what is noise of such elements.
  tensor_distance still = scene::still(0.01);
  still.count = 40;
  CHECK(verdict(0.03, {loud, still}) == "accepted");
  CHECK(verdict(0.05, {loud, still}) == "inconclusive");
  CHECK(verdict(1e-12, {loud, scene::still(0)}) == "inconclusive");
  // Of a tensor that is no noise nothing is excused, nor if noise is most of the group.
  CHECK(verdict(1e-12, {{"w", 100, 0.05, 0.05, 1e-9, 1, 1}}) == "inconclusive");
  CHECK(verdict(1e-12, {{"w", 900, 0.5, 0.5, 1e-9, 1, 1}}) == "inconclusive");
}

TEST_CASE("what a state makes of the next step is judged with twice the tolerance") {
  for (const auto& [off, verdict] : {std::pair{0.0015, "accepted"},
                                     {0.0018, "inconclusive"},
                                     {0.8, "inconclusive"},
                                     {0.9, "rejected"}}) {
    CAPTURE(off);
    scene run;
    run.next(off, 1e-4);
    CHECK(run.verdict() == verdict);
  }
  scene unknown;
  unknown.one->distances.push_back(group("next", 1e-5));
  CHECK(unknown.verdict() == "inconclusive");
}

TEST_CASE("buffers are judged a step later, too, by their own rule") {
  for (const auto& [off, verdict] : {std::pair{0.0015, "accepted"}, {0.9, "rejected"}}) {
    CAPTURE(off);
    scene run;
    run.next(1e-5, 1e-4);
    run.one->distances.push_back(group("next_buffers", off));
    for (auto& repeat : run.one->noise) repeat.push_back(group("next_buffers", 1e-4));
    const auto found = judge_replay(run.run.view, run.options, nonce_of(1), run.measured).value();
    CHECK(run.verdict() == verdict);
    CHECK(count(found, outcome::reject, "replay.buffers") == (off > 0.5 ? 1 : 0));
  }
}

TEST_CASE("a step later weights and buffers are compared, and nothing that is counted") {
  tree held;
  const auto state = [&held](float weight, float mean, std::int64_t seen) {
    const tree::value weights = tree::dict({{"w", held.floats({weight})}});
    const tree::value kept = tree::dict({{"mean", held.floats({mean})}, {"seen", {seen}}});
    return tree::dict({{"model", tree::dict({{"parameters", weights}, {"buffers", kept}})}});
  };
  for (const std::int64_t left : {0, 6}) {
    const auto groups = compare_next(state(0, 0, 0), state(0, 0, 4), state(0, 0, left));
    CHECK((groups[1].structure_equal && groups[1].tensors.empty()));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const auto far = compare_next(state(0, 0, 0), state(infinity, 3, 4), state(2, 5, 6));
  CHECK(far[0].tensors.at(0).path == "model/parameters/w where it is infinite a step later");
  const auto groups = compare_next(state(0, 0, 0), state(1, 3, 4), state(2, 5, 6));
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].group == "next");
  CHECK(groups[0].l2 == 1);
  CHECK(groups[1].group == "next_buffers");
  CHECK(groups[1].l2 == 2);
  CHECK((groups[0].structure_equal && groups[1].structure_equal));
  CHECK(groups[1].tensors.at(0).path == "model/buffers/mean a step later");
}

TEST_CASE("with tolerance exact other bits of equal values reject, whatever a step later shows") {
  scene run;
  run.options.tolerance = "exact";
  run.one->distances = groups(0);
  run.next(0, 0);
  CHECK(run.verdict() == "rejected");
}

TEST_CASE("a step later says nothing more of a segment that ends too far off") {
  scene run;
  run.one->distances[0] = group("parameters", 5);
  run.next(5, 1e-4);
  const auto found = judge_replay(run.run.view, run.options, nonce_of(1), run.measured).value();
  CHECK(count(found, outcome::reject) == 1);
  CHECK(count(found, outcome::reject, "replay.optimizer") == 0);
}

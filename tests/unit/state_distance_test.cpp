// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <limits>

#include <potl/checks/state_distance.hpp>
#include <potl/numeric/distance.hpp>

#include "state_tree.hpp"

using potl::dtype;
using potl::checks::compare_states;
using potl::checks::group_distance;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

struct compared {
  group_distance parameters, buffers, optimizer, other;
};

compared compare(small_state start, small_state recorded, small_state replayed) {
  const auto groups = compare_states(start.root(), recorded.root(), replayed.root());
  REQUIRE(groups.size() == 4);
  return {groups[0], groups[1], groups[2], groups[3]};
}

}  // namespace

TEST_CASE("norms of a distance are those of the difference, relative to the update") {
  small_state start, recorded, replayed;
  recorded.weights = {1, 2, 3, 8};
  replayed.weights = {1, 5, 3, 8};
  const auto d = compare(start, recorded, replayed).parameters;
  REQUIRE(d.group == "parameters");
  REQUIRE(d.l1 == 3);
  REQUIRE(d.l2 == 3);
  REQUIRE(d.linf == 3);
  REQUIRE(d.update_l2 == 4);
  REQUIRE(d.replayed_update_l2 == 5);
  REQUIRE(d.cosine == Approx(16.0 / (4 * 5)));
  REQUIRE(d.weight_l2 == Approx(std::sqrt(1 + 4 + 9 + 64.0)));
  REQUIRE(d.worst_tensor == "model/parameters/w");
  REQUIRE(d.worst_relative == Approx(0.75).epsilon(1e-5));
}

TEST_CASE("each group of a state is measured for itself") {
  small_state start, recorded, replayed;
  replayed.momentum[0] += 1;
  const auto d = compare(start, recorded, replayed);
  REQUIRE(d.parameters.l2 == 0);
  REQUIRE(d.buffers.l2 == 0);
  REQUIRE(d.optimizer.l2 == Approx(1));
  replayed = {};
  replayed.means[1] += 2;
  REQUIRE(compare(start, recorded, replayed).buffers.l2 == 2);
  REQUIRE(compare(start, recorded, replayed).optimizer.l2 == 0);
}

TEST_CASE("equal updates have cosine 1, opposite ones -1, and two that are zero 1") {
  small_state start, recorded, replayed;
  REQUIRE(compare(start, recorded, replayed).parameters.cosine == 1);
  recorded.weights = {2, 2, 3, 4};
  REQUIRE(compare(start, recorded, recorded).parameters.cosine == 1);
  replayed.weights = {0, 2, 3, 4};
  REQUIRE(compare(start, recorded, replayed).parameters.cosine == -1);
}

TEST_CASE("a step counter that differs is a difference of structure, in its own group") {
  small_state start, recorded, replayed;
  replayed.step = 8;
  const auto d = compare(start, recorded, replayed);
  REQUIRE_FALSE(d.other.structure_equal);
  REQUIRE(d.parameters.structure_equal);
  REQUIRE(d.optimizer.structure_equal);
}

TEST_CASE("an integer tensor that differs is a difference of structure, in its own group") {
  const auto of = [](tree& held, std::int64_t batches) {
    return tree::dict(
        {{"model",
          tree::dict({{"buffers", tree::dict({{"batches", held.tensor<std::int64_t>(
                                                              dtype::i64, {batches})}})}})}});
  };
  tree held;
  const auto equal = compare_states(of(held, 3), of(held, 4), of(held, 4));
  REQUIRE(equal[1].structure_equal);
  const auto differ = compare_states(of(held, 3), of(held, 4), of(held, 5));
  REQUIRE(differ[1].group == "buffers");
  REQUIRE_FALSE(differ[1].structure_equal);
  REQUIRE(differ[0].structure_equal);
}

TEST_CASE("a tensor that one side lacks is a difference of structure") {
  small_state start, recorded, replayed;
  replayed.has_momentum = false;
  REQUIRE_FALSE(compare(start, recorded, replayed).optimizer.structure_equal);
}

TEST_CASE("momentum that the start does not have yet counts as zero there") {
  small_state start, recorded, replayed;
  start.has_momentum = false;
  const auto d = compare(start, recorded, replayed).optimizer;
  REQUIRE(d.structure_equal);
  REQUIRE(d.update_l2 == Approx(std::sqrt(0.01 + 0.04 + 0.09 + 0.16)));
}

TEST_CASE("other dims or another dtype are a difference of structure") {
  small_state start, recorded, replayed;
  replayed.weights.push_back(5);
  REQUIRE_FALSE(compare(start, recorded, replayed).parameters.structure_equal);
}

TEST_CASE("a NaN on either side is reported and makes every distance NaN") {
  small_state start, recorded, replayed;
  recorded.weights[2] = not_a_number;
  for (const auto& d : {compare(start, recorded, replayed), compare(start, replayed, recorded),
                        compare(recorded, recorded, recorded)}) {
    REQUIRE_FALSE(d.parameters.finite);
    REQUIRE(std::isnan(d.parameters.l2));
    REQUIRE(std::isnan(d.parameters.worst_relative));
    REQUIRE(d.optimizer.finite);
  }
}

TEST_CASE("a mask of infinities that stays where it was is no news") {
  small_state start, recorded, replayed;
  for (auto* one : {&start, &recorded, &replayed}) one->means[0] = -infinity;
  recorded.means[1] = 1;
  replayed.means[1] = 1.5;
  const auto d = compare(start, recorded, replayed).buffers;
  REQUIRE(d.finite);
  REQUIRE(d.l2 == 0.5);
  REQUIRE(d.update_l2 == 0.75);
}

TEST_CASE("an infinity that the segment brought is reported, even when both sides have it") {
  small_state start, recorded, replayed;
  recorded.weights[0] = replayed.weights[0] = infinity;
  REQUIRE_FALSE(compare(start, recorded, replayed).parameters.finite);
  replayed.weights[0] = -infinity;
  REQUIRE_FALSE(compare(start, recorded, replayed).parameters.finite);
}

TEST_CASE("an infinity that went away is finite, and only left out of the update") {
  small_state start, recorded, replayed;
  start.means[0] = infinity;
  replayed.means[1] = recorded.means[1] = 1;
  const auto d = compare(start, recorded, replayed).buffers;
  REQUIRE(d.finite);
  REQUIRE(d.update_l2 == 0.75);
}

TEST_CASE(
    "rounding of an element that the replay moved leaves no excess, of one that it left it does") {
  small_state start, recorded, replayed;
  start.weights = {0.1f, 0.1f, 0.1f, 0.1f};
  recorded.weights = replayed.weights = {0.2f, 0.2f, 0.1f, 0.1f};
  recorded.weights[0] = std::nextafter(0.2f, 1.0f);
  const auto moved = compare(start, recorded, replayed).parameters;
  REQUIRE(moved.l2 > 0);
  REQUIRE(moved.excess_l2 == 0);
  REQUIRE(moved.tensors.size() == 1);
  REQUIRE(moved.tensors[0].count == 4);
  recorded = replayed;
  recorded.weights[3] = std::nextafter(0.1f, 1.0f);
  const auto left = compare(start, recorded, replayed).parameters;
  REQUIRE(left.excess_l2 == left.l2);
  REQUIRE(left.l2 > 0);
  REQUIRE(left.tensors[0].rounding_only);
  recorded.weights[3] = 0.1001f;
  REQUIRE_FALSE(compare(start, recorded, replayed).parameters.tensors[0].rounding_only);
}

TEST_CASE("no value of one element, or of the record, lifts what rounding explains of another") {
  small_state start, recorded, replayed;
  const float huge = -1e9f;
  start.means = {huge, 0.5f};
  replayed.means = {huge, 0.75f};
  recorded.means = {huge, 0.7501f};
  const auto masked = compare(start, recorded, replayed).buffers;
  REQUIRE(masked.excess_l2 == Approx(1e-4).epsilon(0.01));
  recorded.means = {huge, 1e9f};  // what only the prover says explains nothing
  REQUIRE(compare(start, recorded, replayed).buffers.excess_l2 == Approx(1e9));
}

TEST_CASE("what rounding explains follows the type") {
  tree t;
  const auto of = [&](dtype type, std::vector<std::uint16_t> bits) {
    const auto value = t.tensor(type, bits);
    return std::get<potl::transcript::state_tensor>(value.content).bytes;
  };
  const auto n = potl::numeric::tensor_norms(dtype::bf16, of(dtype::bf16, {0}),
                                             of(dtype::bf16, {0x3f81}), of(dtype::bf16, {0x3f80}));
  REQUIRE(n.rounding_l2 == 0x1p-6);
  REQUIRE(n.excess_l2 == 0);
}

TEST_CASE("a scalar counter of the optimizer does not drown its moments in a norm") {
  tree t;
  const auto state = [&](float step, float moment) {
    return tree::dict(
        {{"optimizers",
          {tree::list{tree::dict({{"step", t.scalar(step)}, {"m", t.floats({moment})}})}}}});
  };
  const auto d = compare_states(state(0, 0), state(1000, 1), state(1000, 2))[2];
  REQUIRE(d.update_l2 == 1);
  REQUIRE(d.l2 == 1);
  const auto counter = compare_states(state(0, 0), state(1000, 1), state(1001, 1))[2];
  REQUIRE(counter.l2 == 0);
  REQUIRE(counter.worst_tensor == "optimizers/0/step");
  REQUIRE(counter.worst_relative == Approx(1e-3).epsilon(0.3));
  REQUIRE(counter.tensors[0].scalar);
}

TEST_CASE("every element type is widened to the same numbers") {
  tree t;
  const auto distance = [&](auto type, auto zero, auto one) {
    const std::vector zeros(3, zero), ones(3, one);
    using potl::numeric::tensor_norms;
    const auto a = t.tensor(type, zeros), b = t.tensor(type, ones);
    const auto bytes = [](const tree::value& v) {
      return std::get<potl::transcript::state_tensor>(v.content).bytes;
    };
    return tensor_norms(type, bytes(a), bytes(a), bytes(b)).l1;
  };
  REQUIRE(distance(dtype::f32, 0.0f, 1.0f) == 3);
  REQUIRE(distance(dtype::f64, 0.0, 1.0) == 3);
  REQUIRE(distance(dtype::bf16, std::uint16_t{0}, std::uint16_t{0x3f80}) == 3);
  REQUIRE(distance(dtype::f16, std::uint16_t{0}, std::uint16_t{0x3c00}) == 3);
  REQUIRE(distance(dtype::f16, std::uint16_t{0}, std::uint16_t{0x0001}) == 3 * 0x1p-24);
  REQUIRE(distance(dtype::f8_e4m3, std::uint8_t{0}, std::uint8_t{0x38}) == 3);
  REQUIRE(distance(dtype::f8_e5m2, std::uint8_t{0}, std::uint8_t{0x3c}) == 3);
  REQUIRE(distance(dtype::i16, std::int16_t{0}, std::int16_t{-1}) == 3);
  REQUIRE(distance(dtype::u64, std::uint64_t{0}, std::uint64_t{1}) == 3);
}

TEST_CASE("infinities and NaN of the small formats are what they are in IEEE") {
  const auto finite = [](dtype type, std::vector<std::uint8_t> bits) {
    const potl::bytes_view bytes{bits.data(), bits.size()};
    return potl::numeric::tensor_norms(type, {}, bytes, bytes).finite;
  };
  REQUIRE_FALSE(finite(dtype::f16, {0x00, 0x7c}));
  REQUIRE_FALSE(finite(dtype::f16, {0x01, 0x7c}));
  REQUIRE_FALSE(finite(dtype::bf16, {0x80, 0x7f}));
  REQUIRE_FALSE(finite(dtype::f8_e5m2, {0x7c}));
  REQUIRE_FALSE(finite(dtype::f8_e4m3, {0x7f}));
  REQUIRE(finite(dtype::f8_e4m3, {0x7e}));
}

TEST_CASE("a norm does not depend on where its blocks end") {
  for (const std::size_t count : {1u, 7u, 511u, 512u, 513u, 1500u}) {
    std::vector<float> zeros(count, 0), ones(count, 1);
    tree t;
    const auto a = t.floats(zeros), b = t.floats(ones);
    const auto bytes = [](const tree::value& v) {
      return std::get<potl::transcript::state_tensor>(v.content).bytes;
    };
    const auto n = potl::numeric::tensor_norms(dtype::f32, bytes(a), bytes(b), bytes(a));
    REQUIRE(n.l1 == static_cast<double>(count));
    REQUIRE(n.update_l2 == Approx(std::sqrt(static_cast<double>(count))));
    REQUIRE(n.replayed_update_l2 == 0);
  }
}

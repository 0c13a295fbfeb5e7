// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <limits>
#include <string>

#include <potl/checks/detail/state_distance.hpp>
#include <potl/numeric/detail/distance.hpp>

#include "state_tree.hpp"

using potl::dtype;
using potl::checks::compare_states;
using potl::checks::group_distance;
using potl::checks::judged_as;

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

TEST_CASE("norms of a group are those of all its tensors together") {
  tree held;
  const auto of = [&](float a, float b) {
    const tree::value weights = tree::dict({{"a", held.floats({a})}, {"b", held.floats({b})}});
    return tree::dict({{"model", tree::dict({{"parameters", weights}})}});
  };
  const auto d = compare_states(of(0, 0), of(5, 4), of(1, 1))[0];
  REQUIRE(d.l1 == 7);
  REQUIRE(d.l2 == 5);
  REQUIRE(d.linf == 4);
  REQUIRE(d.excess_l2 == Approx(5));
  REQUIRE(d.rounding_l2 == Approx(std::sqrt(2.0) * 0x1p-22));
  REQUIRE(d.update_l2 == Approx(std::sqrt(41.0)));
  REQUIRE(d.replayed_update_l2 == Approx(std::sqrt(2.0)));
  REQUIRE(d.weight_l2 == Approx(std::sqrt(41.0)));
  REQUIRE(d.cosine == Approx(9 / std::sqrt(82.0)));
  REQUIRE(d.count == 2);
  REQUIRE(d.tensors.size() == 2);
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

TEST_CASE("a step counter that the replay left is off by a number, in its own group") {
  small_state start, recorded, replayed;
  recorded.step = 8;
  const auto d = compare(start, recorded, replayed);
  REQUIRE((d.other.structure_equal && d.other.tensors.size() == 2));
  REQUIRE((d.other.tensors[0].l2 > 0 && d.other.tensors[0].replayed_update_l2 == 0));
  REQUIRE((d.parameters.tensors.empty() && d.optimizer.tensors.empty()));
}

TEST_CASE("an integer is off by a number, and in no norm") {
  tree held;
  const auto of = [&](std::int64_t hits, std::int64_t number) {
    const tree::value tensor = held.tensor<std::int64_t>(dtype::i64, {hits, 7});
    const tree::value buffers = tree::dict({{"hits", tensor}, {"mean", held.floats({1})}});
    return tree::dict({{"model", tree::dict({{"buffers", buffers}})},
                       {"state", tree::dict({{"number", {number}}})}});
  };
  const auto equal = compare_states(of(3, 5), of(9, 9), of(9, 9));
  REQUIRE((equal[1].structure_equal && equal[1].tensors.empty() && equal[3].tensors.empty()));

  const auto off = compare_states(of(3, 5), of(11, 8), of(13, 9));
  REQUIRE((off[1].group == "buffers" && off[1].structure_equal && off[3].structure_equal));
  REQUIRE((off[1].l2 == 0 && off[1].count == 1));
  const auto& hits = off[1].tensors.at(0);
  REQUIRE(hits.path == "model/buffers/hits");
  REQUIRE((hits.l2 == 2 && hits.excess == 2 && hits.update_l2 == 8));
  REQUIRE((hits.replayed_update_l2 == 10 && hits.count == 2 && hits.judged == judged_as::codes));
  REQUIRE_FALSE(hits.rounding_only);
  const auto& many = off[1].tensors.at(1);
  REQUIRE(many.path == "model/buffers/hits (how many)");
  REQUIRE((many.judged == judged_as::code_places && !many.rounding_only));
  REQUIRE((many.l2 == 1 && many.excess == 1 && many.count == 2));
  REQUIRE((many.update_l2 == 1 && many.replayed_update_l2 == 1));
  const auto& number = off[3].tensors.at(0);
  REQUIRE((number.path == "state/number" && number.l2 == 1 && number.replayed_update_l2 == 4));

  const auto left = compare_states(of(3, 5), of(4, 6), of(3, 5));
  REQUIRE((left[1].structure_equal && left[3].structure_equal));
  REQUIRE((left[1].tensors.at(0).l2 == 1 && left[1].tensors[0].replayed_update_l2 == 0));
  REQUIRE_FALSE(left[1].tensors[0].rounding_only);
  REQUIRE(left[3].tensors.at(0).l2 == 1);
  // No double tells these apart.
  const std::int64_t vast = std::int64_t{1} << 60;
  const auto one = compare_states(of(vast + 4, 5), of(vast, 5), of(vast + 1, 5))[1];
  REQUIRE((one.structure_equal && one.tensors.at(0).l2 == 1));
  REQUIRE((one.tensors[0].update_l2 == 4 && one.tensors[0].replayed_update_l2 == 3));
}

TEST_CASE("an integer in place of an optimizer's float is as far off as the float") {
  const auto of = [](const tree::value& best) {
    return tree::dict({{"schedulers", tree::dict({{"best", best}})}});
  };
  const auto d = compare_states(of(tree::value{0.0}), of(tree::value{std::int64_t{-100}}),
                                of(tree::value{0.5}))[2];
  REQUIRE(d.tensors.size() == 1);
  REQUIRE(d.tensors[0].path == "schedulers/best");
  REQUIRE(d.tensors[0].l2 == 100.5);
  REQUIRE_FALSE(is_code(d.tensors[0].judged));
}

TEST_CASE("what an optimizer of one side lacks is another form, beside what both have") {
  small_state start, recorded, replayed;
  replayed.has_momentum = false;
  for (const auto& d : {compare(start, recorded, replayed), compare(start, replayed, recorded)}) {
    REQUIRE(d.optimizer.structure_equal);
    REQUIRE(d.optimizer.tensors.at(0).path.find("(its length, type or text)") != std::string::npos);
  }
}

TEST_CASE("what is no number is compared exactly, whatever its kind") {
  using namespace potl::transcript;
  using value = tree::value;
  const auto list = [](std::vector<value> items) { return value{tree::list(std::move(items))}; };
  const auto tuple = [](std::vector<value> items) {
    return value{state_tuple{tree::list(std::move(items))}};
  };
  const auto bytes = [](std::uint8_t last) { return value{state_bytes{{1, last}}}; };
  const value one{std::int64_t{1}}, two{std::int64_t{2}};
  tree held;
  const std::vector<float> zeros(4);
  value square = held.floats(zeros);
  std::get<state_tensor>(square.content).dims = {2, 2};
  const std::vector<std::pair<value, value>> different{
      {one, {1.0}},
      {one, {}},
      {{std::string("a")}, {std::string("b")}},
      {bytes(2), bytes(3)},
      {{state_alias{"a"}}, {state_alias{"b"}}},
      {list({{std::string("a")}}), list({{std::string("b")}})},
      {list({one}), list({one, two})},
      {tuple({{std::string("a")}}), tuple({{std::string("b")}})},
      {tuple({one}), tuple({one, two})},
      {tuple({one}), list({one})},
      {tree::dict({{"a", one}}), tree::dict({{"b", one}})},
      {tree::dict({{"a", one}}), tree::dict({{"a", one}, {"b", one}})},
      {held.floats(zeros), square},
      {held.floats(zeros), held.tensor(dtype::i32, zeros)},
      {held.floats(zeros), held.tensor(dtype::bf16, zeros)},
  };
  const auto equal = [](const value& recorded, const value& replayed) {
    const auto of = [](const value& a) {
      return tree::dict({{"counters", tree::dict({{"x", a}})}});
    };
    const auto groups = compare_states(of(replayed), of(recorded), of(replayed));
    REQUIRE(groups[3].group == "other");
    REQUIRE((groups[0].structure_equal && groups[1].structure_equal && groups[2].structure_equal));
    return groups[3].structure_equal;
  };
  for (std::size_t i = 0; i < different.size(); ++i) {
    const auto& [a, b] = different[i];
    CAPTURE(i);
    CHECK_FALSE(equal(a, b));
    CHECK_FALSE(equal(b, a));
    CHECK(equal(a, a));
    CHECK(equal(b, b));
  }
}

TEST_CASE("a difference above the groups is one of every group") {
  small_state held;
  const tree::value root = held.root(), nothing{};
  for (const auto& changed : {nothing, tree::dict({{"model", nothing}})}) {
    for (const auto& group : compare_states(root, root, changed)) {
      INFO(group.group);
      CHECK_FALSE(group.structure_equal);
    }
  }
}

TEST_CASE("a float beside the tensors is compared too, and what both sides have is no difference") {
  const auto of = [](double best) {
    return tree::dict({{"schedulers", tree::dict({{"best", {best}}})}});
  };
  const double inf = infinity, nan = not_a_number;
  const auto compared = [&](double recorded, double replayed) {
    return compare_states(of(recorded), of(recorded), of(replayed))[2];
  };
  CHECK(compared(inf, inf).tensors.empty());
  CHECK(compared(inf, inf).finite);
  CHECK(compared(1, 1).tensors.empty());
  CHECK(compared(1, 2).tensors.at(0).l2 == 1);
  for (const auto& [one, other] :
       {std::pair{inf, -inf}, std::pair{inf, 1.0}, std::pair{1.0, inf}}) {
    const auto d = compared(one, other);
    CHECK(
        (d.finite && d.tensors.size() == (one == -other ? 2 : 3) && is_code(d.tensors[0].judged)));
    CHECK(d.tensors[0].path == "schedulers/best where it is infinite");
  }
  CHECK_FALSE(compared(nan, 1).finite);
  CHECK_FALSE(compared(1, nan).finite);
  CHECK_FALSE(compared(nan, inf).finite);
  CHECK_FALSE(compared(inf, nan).finite);
  CHECK(compared(nan, nan).tensors.empty());
  CHECK(compared(nan, nan).finite);
}

TEST_CASE("a parameter without dimensions counts in the norm of the parameters") {
  tree held;
  const auto of = [&](float scale) {
    return tree::dict(
        {{"model", tree::dict({{"parameters", tree::dict({{"scale", held.scalar(scale)}})}})}});
  };
  const auto d = compare_states(of(0), of(1), of(3))[0];
  REQUIRE(d.l2 == 2);
  REQUIRE(d.count == 1);
  REQUIRE_FALSE(d.tensors.at(0).judged != judged_as::floats);
}

TEST_CASE("a start of another dtype or size counts as zero") {
  tree held;
  const auto of = [](const tree::value& momentum) {
    return tree::dict({{"optimizers", tree::dict({{"m", momentum}})}});
  };
  const tree::value end = held.floats({3, 4});
  for (const auto& start : {held.tensor(dtype::i32, std::vector<float>{3, 4}), held.floats({3})}) {
    REQUIRE(compare_states(of(start), of(end), of(end))[2].update_l2 == 5);
  }
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
                        compare(recorded, recorded, replayed)}) {
    REQUIRE_FALSE(d.parameters.finite);
    REQUIRE(std::isnan(d.parameters.l2));
    REQUIRE(std::isnan(d.parameters.linf));
    REQUIRE(std::isnan(d.parameters.excess_l2));
    REQUIRE_FALSE(d.parameters.tensors.at(0).rounding_only);
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

TEST_CASE("what is not finite is no difference where both sides have it, and else reported") {
  for (const float what : {infinity, -infinity, not_a_number}) {
    CAPTURE(what);
    small_state start, recorded, replayed;
    recorded.means = replayed.means = {what, 1};
    replayed.means[1] = 1.5;
    for (const float before : {0.25f, infinity, -infinity, not_a_number}) {
      start.means[0] = before;
      const auto d = compare(start, recorded, replayed).buffers;
      CHECK((d.finite && d.l2 == 0.5 && d.update_l2 == 0.75));
    }
    for (const float other : {0.25f, infinity, -infinity, not_a_number}) {
      replayed.means[0] = other;
      for (const auto& d : {compare(start, recorded, replayed).buffers,
                            compare(start, replayed, recorded).buffers}) {
        CHECK(d.finite == (std::isnan(other) == std::isnan(what)));
        const bool differs = d.finite && other != what && !std::isnan(what);
        CHECK((!d.finite || d.tensors.size() == (differs ? 3u : 1u)));
      }
    }
  }
}

TEST_CASE("an infinity of one side is judged by itself, and so are the numbers beside it") {
  small_state start, recorded, replayed;
  start.means = {-infinity, 0.25f};
  recorded.means = {-infinity, 1};
  replayed.means = {0, 1.5f};
  const auto d = compare(start, recorded, replayed).buffers;
  REQUIRE((d.finite && d.structure_equal && d.l2 == 0.5 && d.update_l2 == 0.75));
  const auto& mask = d.tensors.at(0);
  REQUIRE(mask.path == "model/buffers/mean where it is infinite");
  REQUIRE((is_code(mask.judged) && mask.l2 == 1 && mask.excess == 1 && !mask.rounding_only));
  REQUIRE((mask.update_l2 == 0 && mask.replayed_update_l2 == 1));
  REQUIRE((d.tensors.at(2).l2 == 0.5 && !is_code(d.tensors[2].judged)));
  // Whoever has no infinity there has not just any number for it.
  recorded.means[0] = 1e30f;
  replayed.means[0] = -infinity;
  REQUIRE(compare(start, recorded, replayed).buffers.tensors.at(2).l2 == Approx(1e30));
}

TEST_CASE("what was not finite and is now is finite, and came from 0") {
  for (const float before : {infinity, not_a_number}) {
    small_state start, recorded, replayed;
    start.means[0] = before;
    recorded.means = replayed.means = {1, 1};
    const auto d = compare(start, recorded, replayed).buffers;
    REQUIRE(d.finite);
    REQUIRE(d.update_l2 == 1.25);
  }
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

TEST_CASE("rounding moves no buffer and no frozen parameter that the replay leaves where it was") {
  tree held;
  const auto of = [&](std::vector<float> values, bool trained) {
    const tree::value weights = held.floats(values);
    return tree::dict({{"model", tree::dict({{"parameters", tree::dict({{"w", weights}})},
                                             {"buffers", tree::dict({{"mean", weights}})},
                                             {"requires_grad", tree::dict({{"w", {trained}}})}})}});
  };
  const std::vector<float> before{1, 2}, moved{1, 3}, off{std::nextafter(1.0f, 2.0f), 2},
      moved_off{std::nextafter(1.0f, 2.0f), 3};
  for (const bool trained : {true, false}) {
    CAPTURE(trained);
    const auto still = compare_states(of(before, trained), of(off, trained), of(before, trained));
    CHECK(still[0].tensors.at(0).rounding_only == trained);
    CHECK_FALSE(still[1].tensors.at(0).rounding_only);
    const auto moves =
        compare_states(of(before, trained), of(moved_off, trained), of(moved, trained));
    CHECK(moves[0].tensors.at(0).rounding_only);
    CHECK(moves[1].tensors.at(0).rounding_only);
  }
}

TEST_CASE("rounding alone excuses no tensor in half precision, where it adds up") {
  tree held;
  const auto of = [&](dtype type, const std::vector<std::uint8_t>& bytes) {
    return tree::dict(
        {{"model", tree::dict({{"parameters", tree::dict({{"w", held.tensor(type, bytes)}})}})}});
  };
  const auto excused = [&](dtype type, const std::vector<std::uint8_t>& start,
                           const std::vector<std::uint8_t>& recorded,
                           const std::vector<std::uint8_t>& replayed) {
    const auto groups = compare_states(of(type, start), of(type, recorded), of(type, replayed), {});
    return groups[0].tensors.at(0).rounding_only;
  };
  // 1 and the next number, and the one that the replay comes to.
  CHECK_FALSE(excused(dtype::bf16, {0x80, 0x3f}, {0x81, 0x3f}, {0x82, 0x3f}));
  CHECK_FALSE(excused(dtype::f16, {0x00, 0x3c}, {0x01, 0x3c}, {0x02, 0x3c}));
  CHECK(excused(dtype::f32, {0, 0, 0x80, 0x3f}, {1, 0, 0x80, 0x3f}, {2, 0, 0x80, 0x3f}));
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

TEST_CASE("rounding follows the larger of an element's values at the start and in the replay") {
  tree held;
  const auto excess = [&](float before, float after, float off) {
    const auto bytes = [&](float value) {
      return std::get<potl::transcript::state_tensor>(held.floats({value}).content).bytes;
    };
    return potl::numeric::tensor_norms(dtype::f32, bytes(before), bytes(after + off), bytes(after))
        .excess_l2;
  };
  for (const auto& [before, after] : {std::pair{1.0f, 0.5f}, {0.5f, 1.0f}}) {
    CAPTURE(before);
    CHECK(excess(before, after, 0x1p-22f) == 0);
    CHECK(excess(before, after, 0x1p-22f + 0x1p-23f) == 0x1p-23);
  }
}

TEST_CASE("the unit of roundoff is that of the dtype") {
  using potl::numeric::unit_roundoff;
  const std::vector<std::pair<dtype, double>> known{
      {dtype::f64, 0x1p-53},    {dtype::f32, 0x1p-24}, {dtype::c64, 0x1p-24},
      {dtype::f16, 0x1p-11},    {dtype::bf16, 0x1p-8}, {dtype::f8_e4m3, 0x1p-4},
      {dtype::f8_e5m2, 0x1p-3}, {dtype::i64, 0}};
  for (const auto& [type, unit] : known) CHECK(unit_roundoff(type) == unit);
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
  REQUIRE(counter.tensors[0].judged == judged_as::alone);
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
    const std::vector<std::uint8_t> zeros(bits.size());
    const potl::bytes_view before{zeros.data(), zeros.size()}, bytes{bits.data(), bits.size()};
    return potl::numeric::tensor_norms(type, {}, before, bytes).finite;
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

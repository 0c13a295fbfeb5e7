// SPDX-License-Identifier: Apache-2.0
// Elements that are no noise in a tensor of which others are.
#include "catch.hpp"

#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include <potl/checks/detail/state_distance.hpp>
#include <potl/checks/detail/steady.hpp>

#include "state_tree.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

using floats = std::vector<float>;

struct scene {
  tree held;

  tree::value root(const floats& weights) {
    return tree::dict(
        {{"model", tree::dict({{"parameters", tree::dict({{"w", held.floats(weights)}})}})}});
  }
  /// Repeats of a replay from zeros, the last of which shows no tensors.
  std::vector<still_elements> steady(const floats& replayed, const std::vector<floats>& repeats) {
    std::deque<tree::value> roots;
    std::vector<steady_repeat> ends;
    for (const floats& one : repeats) ends.push_back({&roots.emplace_back(root(one)), true});
    ends.back().shows_tensors = false;
    return steady_elements(root(floats(replayed.size())), root(replayed), ends, 0.1);
  }
};

}  // namespace

TEST_CASE("elements that every repeat leaves near the replay are steady") {
  scene one;
  const floats replayed{1, 1, 1, 1, 1, 1, 1, 0};
  const auto found =
      one.steady(replayed, {{1.05F, 1, 1, 1, 1, -1, 1, 0}, {1, 0.95F, 1, 1, 1, 1, 0.5F, 0}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].paths == std::vector<std::string>{"model/parameters/w"});
  CHECK(found[0].mask == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0, 0, 0});
}

TEST_CASE("a tensor that is not noise as a whole has no steady part") {
  scene one;
  const floats replayed{1, 1, 1, 1, 1, 1};
  CHECK(one.steady(replayed, {{1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, -1}}).empty());
  CHECK(one.steady(replayed, {{1, 1, 1, 1, 1, 1.2F}, {1, 1, 1, 1, 1, 1}}).empty());
  CHECK(one.steady(replayed, {{1, 1, 1, 1, 1, 1.3F}, {1, 1, 1, 1, 1, 1}}).size() == 1);
}

TEST_CASE("a few elements come out alike by chance") {
  scene one;
  CHECK(one.steady({1, 1, 1, 1}, {{1, 1, 1, -1}, {1, 1, 1, 1}}).empty());
  for (const std::size_t size : {15U, 16U}) {
    CAPTURE(size);
    floats other(size, -1);
    for (std::size_t i = 0; i < 4; ++i) other[i] = 1;
    CHECK(one.steady(floats(size, 1), {other, other}).empty() == (size == 16));
  }
}

TEST_CASE("what is not a number is not steady") {
  scene one;
  const auto found = one.steady({1, 1, 1, 1, 1, 1}, {{1, 1, 1, 1, 1, -1}, {1, 1, 1, 1, NAN, 1}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].mask == std::vector<std::uint8_t>{1, 1, 1, 1, 0, 0});
}

TEST_CASE("a steady part stands among the tensors, and counts once in its group") {
  scene one;
  const std::vector<still_elements> steady{{{"model/parameters/w"}, {1, 0}}};
  const auto groups =
      compare_states(one.root({0, 0}), one.root({4, 3}), one.root({1, 1}), {}, steady);
  CHECK(groups[0].l2 == Approx(std::hypot(3, 2)));
  CHECK(groups[0].worst_tensor == "model/parameters/w");
  CHECK(groups[0].count == 2);
  REQUIRE(groups[0].tensors.size() == 2);
  const tensor_distance& part = groups[0].tensors[1];
  CHECK(part.path == "model/parameters/w where it is no noise");
  CHECK((part.judged == judged_as::steady && part.count == 1 && part.l2 == 3));
  CHECK((part.update_l2 == 4 && part.replayed_update_l2 == 1));
}

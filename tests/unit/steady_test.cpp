// SPDX-License-Identifier: Apache-2.0
// Elements that are no noise in a tensor of which others are.
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
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
    const tree::value start = root(floats(replayed.size())), end = root(replayed);
    steady_search search(start, end, 0.1);
    for (const floats& one : repeats) search.see(root(one), &one != &repeats.back());
    return search.found();
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
  CHECK(found[0].mask == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0, 0, 1});
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
  CHECK(one.steady({1, 1, 1, 1, 0, 0}, {{1, 1, 1, -1, 0, 0}, {1, 1, 1, 1, 0, 0}}).empty());
  const auto found =
      one.steady({1, 1, 1, 1, 1, 1, 0, 0}, {{1, 1, 1, 1, 1, -1, 0, 0}, {1, 1, 1, 1, 1, 1, 0, 1}});
  REQUIRE(found.size() == 1);
  CHECK(found[0].mask == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0, 1, 0});
  CHECK(one.steady({1, 1, 1, 1}, {{1, 1, 1, -1}, {1, 1, 1, 1}}).empty());
  // The values of a bias that many more keys share.
  floats other(60, -1);
  for (const std::size_t steady : {10U, 11U}) {
    CAPTURE(steady);
    std::fill(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(steady), 1.0F);
    CHECK(one.steady(floats(60, 1), {other, other}).empty() == (steady == 10));
  }
}

TEST_CASE("a tensor of many blocks is seen whole, and one that a repeat lacks not at all") {
  scene one;
  floats other(3000, 1);
  other[1500] = other[2999] = -40;
  const auto found = one.steady(floats(3000, 1), {other, other});
  REQUIRE(found.size() == 1);
  CHECK(std::count(found[0].mask.begin(), found[0].mask.end(), 1) == 2998);
  CHECK((found[0].mask[1500] == 0 && found[0].mask[2999] == 0));
  CHECK(one.steady(floats(3000, 1), {other, other, floats(2, 1)}).empty());
}

TEST_CASE("what is steady in another segment is steady") {
  scene one;
  const floats start(8), end{1, 1, 1, 1, 1, 1, 1, 1};
  const auto seen = [&](const tree::value& from, const tree::value& to, const floats& repeat) {
    steady_search out(from, to, 0.1);
    out.see(one.root(repeat), true);
    return out;
  };
  const tree::value from = one.root(start), to = one.root(end);
  steady_search search = seen(from, to, {1, 1, 1, 1, 1, 1, -1, -1});
  CHECK(search.any_noisy());
  CHECK(!seen(from, to, end).any_noisy());
  search.add(seen(from, to, {1, 1, 1, 1, 1, -1, 1, -1}));
  REQUIRE(search.found().size() == 1);
  CHECK(search.found()[0].mask == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 1, 0});
  // The second segment moves all elements but the last two, and its last repeat moves the last.
  const tree::value half = one.root({1, 1, 1, 1, 1, 1, 0, 0});
  steady_search still = seen(from, half, {1, 1, 1, 1, 1, -1, 0, 0});
  REQUIRE(still.found().size() == 1);
  CHECK(still.found()[0].mask == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0, 1, 1});
  still.add(seen(from, half, {1, 1, 1, 1, 1, -1, 0, 1}));
  CHECK(still.found()[0].mask == std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0, 1, 0});
  search.add(seen(from, one.root({1, 1, 1, 1, 1, 1, 1, 0}), {1, 1, 1, 1, 1, 1, 1, 0}));
  CHECK(search.found()[0].mask.back() == 0);  // it stays there, and is noise here
  const tree::value fewer_from = one.root({0, 0}), fewer_to = one.root({1, 1});
  search.add(seen(fewer_from, fewer_to, {1, 1}));
  CHECK(search.found()[0].mask.back() == 0);
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

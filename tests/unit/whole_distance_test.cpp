// SPDX-License-Identifier: Apache-2.0
// Distances of what is no float, or stands for something else than a number.
#include "catch.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <potl/checks/detail/state_distance.hpp>
#include <potl/numeric/detail/distance.hpp>

#include "checks/reach_parts.hpp"
#include "state_tree.hpp"

using namespace potl;
using namespace potl::checks;

TEST_CASE(
    "codes are compared by how many differ, however far they jump and what lies beside them") {
  tree held;
  const auto of = [&](std::vector<std::uint64_t> codes) {
    const tree::value tensor = held.tensor<std::uint64_t>(dtype::u64, std::move(codes));
    return tree::dict({{"state", tree::dict({{"codes", tensor}})}});
  };
  const std::uint64_t most = ~std::uint64_t{0};
  const auto codes = [&](const auto& start, const auto& recorded, const auto& replayed) {
    return compare_states(start, recorded, replayed)[3].tensors.at(1);
  };
  const auto apart = codes(of({1, 2, 3, 4}), of({1, most, 5, most - 1}), of({most, 2, 5, most}));
  REQUIRE((apart.judged == judged_as::code_places && apart.l2 == 3 && apart.update_l2 == 3));
  REQUIRE(apart.replayed_update_l2 == 3);
  // What the start does not have is zero there.
  const auto made = codes(tree::dict({}), of({0, 7, 8, 9}), of({0, 7, 8, 0}));
  REQUIRE((made.l2 == 1 && made.update_l2 == 3 && made.replayed_update_l2 == 2));
}

TEST_CASE("a mask of two numbers is compared like one of booleans, and other floats are not") {
  tree held;
  const auto compared = [&](std::vector<float> start, std::vector<float> recorded,
                            std::vector<float> replayed) {
    const auto of = [&](const std::vector<float>& values) {
      const tree::value buffers = tree::dict({{"mask", held.floats(values)}});
      return tree::dict({{"model", tree::dict({{"buffers", buffers}})}});
    };
    return compare_states(of(start), of(recorded), of(replayed))[1];
  };
  const float low = -1e9f;
  const auto mask = compared({0, 0, 0}, {low, 0, 0}, {0, low, 0});
  REQUIRE((mask.tensors.size() == 2 && mask.l2 == 0 && mask.count == 0));
  REQUIRE((is_code(mask.tensors[0].judged) && mask.tensors[0].l2 == Approx(std::sqrt(2) * 1e9)));
  REQUIRE((mask.tensors[1].judged == judged_as::code_places && mask.tensors[1].l2 == 2));
  REQUIRE_FALSE(is_code(compared({1, 0, 0}, {1, 1, 1}, {0, 0, 0}).tensors.at(0).judged));
  const auto floats = [&](std::vector<float> recorded, std::vector<float> replayed) {
    const auto d = compared(std::vector<float>(replayed.size()), recorded, replayed);
    return d.tensors.size() == 1 && !is_code(d.tensors[0].judged) && d.l2 > 0;
  };
  REQUIRE(floats({1, 2, 2}, {1, 2, 3}));              // three numbers
  REQUIRE(floats({1, 3, 2}, {1, 2, 2}));              // one that only the record has
  REQUIRE(floats({1, 2}, {2, 1}));                    // as many numbers as elements
  REQUIRE(floats({1, 1, std::nextafter(1.0f, 2.0f)},  // rounding
                 {1, std::nextafter(1.0f, 2.0f), 1}));
}

TEST_CASE("a flag that turns is compared like an integer") {
  const auto of = [](bool stopped) {
    return tree::dict({{"state", tree::dict({{"stopped", {stopped}}})}});
  };
  const auto d = compare_states(of(false), of(true), of(false))[3];
  REQUIRE((d.structure_equal && d.tensors.size() == 2 && is_code(d.tensors[0].judged)));
  REQUIRE((d.tensors[1].l2 == 1 && d.tensors[1].replayed_update_l2 == 0));
  REQUIRE(compare_states(of(false), of(true), of(true))[3].tensors.empty());
}

TEST_CASE("the form of what client code keeps as it likes is judged like what is no float") {
  const auto one = tree::value{1.0}, none = tree::value{};
  const auto list = [](std::size_t size) {
    return tree::value{transcript::state_list(size, tree::value{1.0})};
  };
  const auto text = [](const char* content) { return tree::value{std::string(content)}; };
  const auto compared = [](const std::vector<std::string>& at, const tree::value& recorded,
                           const tree::value& replayed) {
    const auto of = [&](tree::value inner) {
      for (std::size_t i = at.size(); i-- > 0;) inner = tree::dict({{at[i], inner}});
      return inner;
    };
    return compare_states(of(replayed), of(recorded), of(replayed))
        .at(at[0] == "state" || at[0] == "model" ? 3 : 2);
  };
  for (const auto& [a, b] : {std::pair{list(2), list(3)}, {none, one}, {text("a"), text("b")}}) {
    for (const auto& at : {std::vector<std::string>{"state", "own", "kept"},
                           {"model", "extra", "own", "kept"},
                           {"ema", "extra", "kept"},
                           {"optimizers", "state", "kept"},
                           {"schedulers", "kept"}}) {
      CAPTURE(at);
      const auto d = compared(at, a, b);
      REQUIRE((d.structure_equal && d.tensors.size() == 1 && d.l2 == 0));
      const tensor_distance& form = d.tensors[0];
      REQUIRE((is_code(form.judged) && form.l2 == 1 && form.excess == 1 && form.update_l2 == 0));
      REQUIRE_FALSE((form.judged == judged_as::code_places || form.rounding_only));
      REQUIRE(form.path.find("kept (its length, type or text)") != std::string::npos);
      REQUIRE(compared(at, a, a).tensors.empty());
    }
    REQUIRE_FALSE(compared({"model", "training", "own"}, a, b).structure_equal);
  }
}

TEST_CASE("the largest number of all stands for infinity, as where no best value is known") {
  const auto of = [](double best, double mean) {
    return tree::dict({{"state", tree::dict({{"best", {best}}, {"mean", {mean}}})}});
  };
  for (const double vast :
       {std::numeric_limits<double>::max(), double{std::numeric_limits<float>::max()}}) {
    const auto d = compare_states(of(vast, 1), of(vast, 2), of(vast, 3))[3];
    REQUIRE((d.finite && d.tensors.size() == 1 && d.tensors[0].path == "state/mean"));
    const auto gone = compare_states(of(vast, 1), of(2, 2), of(3, 2))[3];
    REQUIRE((gone.finite && gone.tensors.at(0).l2 == 1 && gone.tensors[0].update_l2 == 2));
    const auto turned = compare_states(of(1, 1), of(vast, 2), of(-vast, 2))[3];
    REQUIRE((turned.finite && turned.tensors.at(0).path == "state/best where it is infinite"));
    const auto came = compare_states(of(1, 1), of(vast, 2), of(3, 2))[3];
    REQUIRE((came.finite && came.tensors.size() == 3 && came.tensors[2].l2 == 3));
  }
  // Others are numbers, however large.
  const auto off = compare_states(of(1, 1), of(1e40, 2), of(3e40, 2))[3];
  REQUIRE((off.finite && off.tensors.size() == 1 && off.tensors[0].l2 == Approx(2e40)));
}

TEST_CASE("integers among the parameters are in no norm, in which they would drown the weights") {
  tree held;
  const auto of = [&](std::int64_t weight, float bias) {
    const tree::value whole = held.tensor<std::int64_t>(dtype::i64, {weight, 7});
    const tree::value parameters = tree::dict({{"bias", held.floats({bias})}, {"whole", whole}});
    return tree::dict({{"model", tree::dict({{"parameters", parameters}})}});
  };
  const auto equal = compare_states(of(1, 0), of(5, 3), of(5, 3))[0];
  REQUIRE((equal.tensors.empty() && equal.l2 == 0 && equal.update_l2 == 3 && equal.count == 1));
  const auto off = compare_states(of(1, 0), of(5, 3), of(9, 3))[0];
  REQUIRE((off.l2 == 0 && off.update_l2 == 3 && off.tensors.size() == 2 &&
           is_code(off.tensors[0].judged)));
}

TEST_CASE("a movement of 64-bit integers is one that no double need tell") {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max(), least = -most - 1;
  const auto moved = [](auto before, auto after) {
    const auto bytes = [](const auto& of) {
      return bytes_view{reinterpret_cast<const std::uint8_t*>(&of), sizeof of};
    };
    const dtype type = std::is_signed_v<decltype(before)> ? dtype::i64 : dtype::u64;
    return numeric::movement(type, bytes(before), bytes(after)).numbers;
  };
  CHECK(moved(most, most - 3) == 3);
  CHECK(moved(least, least + 3) == 3);
  CHECK(moved(least, most) == Approx(0x1p64));
  CHECK(moved(std::uint64_t{0}, ~std::uint64_t{0}) == Approx(0x1p64));
  CHECK(moved(~std::uint64_t{0}, ~std::uint64_t{2}) == 2);
  CHECK(numeric::movement(dtype::i64, {},
                          bytes_view{reinterpret_cast<const std::uint8_t*>(&most), sizeof most})
            .numbers == Approx(0x1p63));
}

TEST_CASE("the largest number of all stands for infinity, and lets no number move further") {
  const double vast = std::numeric_limits<double>::max(), some = 0.5;
  const auto bytes_of = [](const double& of) {
    return bytes_view{reinterpret_cast<const std::uint8_t*>(&of), sizeof of};
  };
  const double of_bfloat16 = 0x1.fep127;
  for (const double most : {vast, -vast, double{std::numeric_limits<float>::max()}, of_bfloat16}) {
    const numeric::moved by = numeric::movement(dtype::f64, bytes_of(most), bytes_of(some));
    CHECK((by.numbers == some && by.came == 0 && by.went == 1));
    CHECK(std::isnan(movement_of({nullptr, true, most}, {nullptr, true, some}).numbers));
  }
  CHECK(movement_of({nullptr, true, vast}, {nullptr, true, vast}).numbers == 0);
}

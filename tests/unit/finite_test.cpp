// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/detail/finite.hpp>
#include <potl/checks/model.hpp>
#include <potl/numeric/detail/finite.hpp>

#include "state_tree.hpp"

using namespace potl;
using checks::not_finite;

namespace {

constexpr float nan_f = std::numeric_limits<float>::quiet_NaN();
constexpr float inf_f = std::numeric_limits<float>::infinity();

std::string found_in(small_state& state, small_state* initial = nullptr) {
  const tree::value root = state.root();
  if (initial == nullptr) return not_finite(root, nullptr);
  const tree::value first = initial->root();
  return not_finite(root, &first);
}

std::string found_at(const std::string& top, const std::string& name, double plain) {
  return not_finite(tree::dict({{top, tree::dict({{name, {plain}}})}}), nullptr);
}

}  // namespace

TEST_CASE("every kind of float is looked at, wherever in the tensor") {
  struct special {
    dtype type;
    std::uint64_t nan, inf;
  };
  const std::vector<special> types{{dtype::f64, 0x7ff8000000000000, 0xfff0000000000000},
                                   {dtype::f32, 0x7fc00000, 0xff800000},
                                   {dtype::bf16, 0x7fc0, 0xff80},
                                   {dtype::f16, 0x7e00, 0xfc00},
                                   {dtype::f8_e5m2, 0x7f, 0xfc},
                                   {dtype::f8_e4m3, 0x7f, 0},
                                   {dtype::c64, 0x7fc00000, 0xff800000}};
  for (const special& one : types) {
    const std::size_t size = info(one.type).size;
    for (const std::size_t at : {0u, 511u, 512u, 1299u}) {
      std::vector<std::uint8_t> bytes(1300 * size);
      REQUIRE_FALSE(numeric::special_values_of(one.type, bytes).nan);
      REQUIRE_FALSE(numeric::special_values_of(one.type, bytes).infinite);
      for (const auto& [bits, is_nan] : {std::pair{one.nan, true}, std::pair{one.inf, false}}) {
        if (bits == 0) continue;
        // The second half of a complex number counts as well.
        const std::size_t width = one.type == dtype::c64 ? 4 : size;
        std::memcpy(bytes.data() + (at + 1) * size - width, &bits, width);
        const auto found = numeric::special_values_of(one.type, bytes);
        INFO(info(one.type).name << " at " << at);
        REQUIRE(found.nan == is_nan);
        REQUIRE(found.infinite != is_nan);
      }
    }
  }
}

TEST_CASE("integers are finite whatever their bits") {
  const std::vector<std::uint8_t> bytes(64, 0xff);
  REQUIRE_FALSE(numeric::special_values_of(dtype::i32, bytes).nan);
  REQUIRE_FALSE(numeric::special_values_of(dtype::i32, bytes).infinite);
}

TEST_CASE("the largest finite numbers are finite") {
  small_state state;
  state.weights = {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max()};
  REQUIRE(found_in(state).empty());
}

TEST_CASE("a NaN is found in parameters, buffers and optimizer state") {
  small_state weights, means, momentum, honest;
  REQUIRE(found_in(honest).empty());
  weights.weights[3] = nan_f;
  REQUIRE(found_in(weights) == "model/parameters/w holds NaN");
  means.means[1] = nan_f;
  REQUIRE(found_in(means) == "model/buffers/mean holds NaN");
  momentum.momentum[0] = nan_f;
  REQUIRE(found_in(momentum) == "optimizers/0/b holds NaN");
  REQUIRE(found_in(weights, &honest) == "model/parameters/w holds NaN");
}

TEST_CASE("infinities are ordinary in buffers and nowhere else") {
  small_state mask, weights, momentum;
  mask.means[0] = -inf_f;
  REQUIRE(found_in(mask).empty());
  weights.weights[0] = inf_f;
  REQUIRE(found_in(weights) == "model/parameters/w holds an infinity");
  momentum.momentum[0] = -inf_f;
  REQUIRE(found_in(momentum) == "optimizers/0/b holds an infinity");
}

TEST_CASE("a mask among the parameters is ordinary where the initial state has it too") {
  small_state initial, kept, moved;
  initial.weights[1] = -inf_f;
  kept.weights[1] = -inf_f;
  REQUIRE(found_in(kept, &initial).empty());
  kept.weights[1] = inf_f;
  REQUIRE_FALSE(found_in(kept, &initial).empty());
  moved.weights[2] = -inf_f;
  REQUIRE_FALSE(found_in(moved, &initial).empty());
  initial.weights = {-inf_f};  // of another size
  REQUIRE_FALSE(found_in(moved, &initial).empty());
}

TEST_CASE("of two buffers only a mask of the verifier's own may become infinite") {
  small_state initial, state;
  state.means[0] = -inf_f;
  const tree::value first = initial.root(), now = state.root();
  const std::vector<std::string> mask{"model/buffers/mean"}, other{"model/buffers/other"};
  REQUIRE(not_finite(now, &first, nullptr).empty());
  REQUIRE(not_finite(now, &first, &mask).empty());
  REQUIRE(not_finite(now, &first, &other) == "model/buffers/mean holds an infinity");
  initial.means[0] = -inf_f;
  const tree::value masked = initial.root();
  REQUIRE(not_finite(now, &masked, &other).empty());
}

TEST_CASE("averages of weights and what lies in tuples are looked at, every item of it") {
  tree held;
  const auto at = [](const std::string& top, tree::value what) {
    return not_finite(tree::dict({{top, std::move(what)}}), nullptr);
  };
  const auto bad = [&] { return held.floats({1, inf_f}); };
  REQUIRE(at("ema", tree::dict({{"parameters", tree::dict({{"w", bad()}})}})) ==
          "ema/parameters/w holds an infinity");
  REQUIRE(at("ema", tree::dict({{"buffers", tree::dict({{"mask", bad()}})}})).empty());
  REQUIRE(at("scaler", bad()).empty());
  REQUIRE(at("scaler", held.floats({nan_f})) == "scaler holds NaN");
  const tree::list two{held.floats({1}), bad()}, again{bad(), held.floats({1})};
  REQUIRE(at("optimizers", {two}) == "optimizers/1 holds an infinity");
  REQUIRE(at("optimizers", {again}) == "optimizers/0 holds an infinity");
  REQUIRE(at("optimizers", {transcript::state_tuple{two}}) == "optimizers/1 holds an infinity");
}

TEST_CASE("an initial state of another dtype excuses no infinity") {
  tree held;
  const auto of = [](tree::value weights) {
    return tree::dict(
        {{"model", tree::dict({{"parameters", tree::dict({{"w", std::move(weights)}})}})}});
  };
  const std::vector<std::uint32_t> bits{0x7f800000};  // in float32 an infinity
  const tree::value now = of(held.tensor(dtype::f32, bits));
  const tree::value same = of(held.tensor(dtype::f32, bits));
  const tree::value other = of(held.tensor(dtype::i32, bits));
  REQUIRE(not_finite(now, &same).empty());
  REQUIRE_FALSE(not_finite(now, &other).empty());
}

TEST_CASE("plain floats may be infinite, and are NaN only in objects of the user's own") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double inf = std::numeric_limits<double>::infinity();
  REQUIRE(found_at("optimizers", "lr", nan) == "optimizers/lr is NaN");
  REQUIRE(found_at("scaler", "scale", nan) == "scaler/scale is NaN");
  REQUIRE(found_at("schedulers", "best", inf).empty());
  REQUIRE(found_at("optimizers", "max_norm", inf).empty());
  REQUIRE(found_at("extra", "best", nan).empty());
  REQUIRE(found_at("optimizers_of_mine", "best", nan).empty());
}

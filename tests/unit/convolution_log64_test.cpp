// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <potl/numeric/convolution.hpp>

#include "catch.hpp"
#include "convolution_inputs.hpp"
#include "convolution_reference.hpp"

using namespace convolutions;
using namespace potl::numeric;

TEST_CASE("log64 rounds every element and names those near a tie", "[convolution]") {
  std::mt19937 generator(78);
  convolution g = square(2, 4, 6, 9, 3, 2, 2);
  const operands in(g, inputs::random, generator);
  const log64_options options{26, 0}, other{26, 5};
  // What a tie in the result is about: the exact sum lies within the window of the value.
  const auto compare = [&](const std::vector<float>& result, const std::vector<float>& exact,
                           const std::vector<near_tie>& ties, const std::vector<float>& again,
                           const std::vector<near_tie>& ties_again) {
    REQUIRE(result.size() == exact.size());
    std::vector<bool> named(result.size(), false);
    for (const auto& list : {ties, ties_again})
      for (const near_tie& one : list) {
        named.at(one.index) = true;
        CHECK(std::fabs(one.value - exact[one.index]) <= 1e-6 * std::fabs(one.value) + one.window);
      }
    CHECK(std::is_sorted(ties.begin(), ties.end(),
                         [](const auto& a, const auto& b) { return a.index < b.index; }));
    for (std::size_t i = 0; i < result.size(); ++i) {
      CHECK(std::fabs(result[i] - exact[i]) <= 1e-4F * std::fabs(exact[i]) + 1e-30F);
      if (!named[i]) CHECK(result[i] == again[i]);
    }
  };
  std::vector<float> y(in.dy.size()), dx(in.x.size()), dw(in.w.size());
  auto y2 = y, dx2 = dx, dw2 = dw;
  const executor& one = inline_executor();
  const auto ty = convolve_log64(g, in.x.data(), in.w.data(), y.data(), options, one);
  const auto ty2 = convolve_log64(g, in.x.data(), in.w.data(), y2.data(), other, one);
  compare(y, reference::forward(arithmetic::cr32, g, in.x, in.w, y.size()), ty, y2, ty2);
  const auto tx =
      convolve_input_gradient_log64(g, in.dy.data(), in.w.data(), dx.data(), options, one);
  const auto tx2 =
      convolve_input_gradient_log64(g, in.dy.data(), in.w.data(), dx2.data(), other, one);
  compare(dx, reference::input_gradient(arithmetic::cr32, g, in.dy, in.w), tx, dx2, tx2);
  const auto tw =
      convolve_weight_gradient_log64(g, in.x.data(), in.dy.data(), dw.data(), options, one);
  const auto tw2 =
      convolve_weight_gradient_log64(g, in.x.data(), in.dy.data(), dw2.data(), other, one);
  compare(dw, reference::weight_gradient(arithmetic::cr32, g, in.x, in.dy, dw.size()), tw, dw2,
          tw2);
}

TEST_CASE("a tie is reported at the index of the element it belongs to", "[convolution]") {
  // Sums of 1 and half a step of the grid: ties at known places, which no error can hide.
  convolution g = square(1, 3, 2, 4, 1, 1);
  std::vector<float> x(48, 0.0F), y(32);
  const std::vector<float> w{1, 1, 1, 1, 1, 0};
  x[5] = 1;
  x[16 + 5] = 0x1p-24F;
  x[32 + 5] = 0x1p-60F;
  const auto ties = convolve_log64(g, x.data(), w.data(), y.data(), {}, inline_executor());
  for (const near_tie& one : ties) CHECK((one.index == 5 || one.index == 21));
  CHECK(!ties.empty());
}

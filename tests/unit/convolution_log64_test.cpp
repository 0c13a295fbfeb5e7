// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/convolution_operands.hpp>
#include <potl/numeric/detail/isa.hpp>
#include <potl/numeric/detail/rounding_referee.hpp>

#include "catch.hpp"
#include "convolution_inputs.hpp"
#include "convolution_reference.hpp"
#include "numeric_levels.hpp"

using namespace convolutions;
using namespace potl::numeric;

namespace {

// An honest trainer's: each element is what the rule allows, and no other is near a tie.
void judge(std::span<const float> result, const std::vector<near_tie>& ties, int bits,
           const element_operands& operands) {
  std::vector<float> a, b;
  auto tie = ties.begin();
  for (std::size_t i = 0; i < result.size(); ++i) {
    operands(i, a, b);
    const dot_operands element{static_cast<std::int64_t>(a.size()), a.data(), 1, b.data(), 1};
    std::optional<bool> up;
    if (tie != ties.end() && tie->index == i) {
      up = result[i] == nearest_tie(tie->value, bits).upper;
      CHECK(tie->window == exact_window(element));
      CHECK(exact_dot(element).is_within(tie->value, tie->window / 2));
      CHECK(result[i] == round_to(tie->value, bits));
      ++tie;
    }
    const element_ruling ruling = rule_on(element, bits, up);
    INFO("element " << i << " of " << a.size() << " terms: " << result[i]);
    REQUIRE(ruling.fault == log_fault::none);
    REQUIRE(same_bits(result.subspan(i, 1), {&ruling.value, 1}));
  }
  CHECK(tie == ties.end());
}

}  // namespace

TEST_CASE("sampled convolutions in log64 are an honest trainer's", "[convolution]") {
  std::mt19937 generator(6464);
  const auto pools = {make_thread_pool(1), make_thread_pool(3)};
  std::size_t logged = 0;
  for (int number = 0; number < 12; ++number) {
    const convolution g = random_geometry(generator, 30'000);
    const auto kind = number % 3 == 2 ? inputs::hostile : inputs::random;
    const operands in(g, kind, generator);
    const auto at_level = [&](isa level) {
      const executor& threads = *pools.begin()[number % 2];
      for (const log64_options options : {log64_options{32, 0}, log64_options{30, 7}}) {
        INFO(text(g) << ", level " << to_string(level) << ", order " << options.order);
        const auto at = options.order == 0 ? guarded_end::back : guarded_end::front;
        const guarded_operands of(in, at);
        guarded<float> y(in.dy.size(), at), dx(in.x.size(), at), dw(in.w.size(), at);
        const auto ty = convolve_log64(g, of.x.data(), of.w.data(), y.data(), options, threads);
        judge(y, ty, options.bits, convolution_operands(g, of.x.data(), of.w.data()));
        const auto tx = convolve_input_gradient_log64(g, of.dy.data(), of.w.data(), dx.data(),
                                                      options, threads);
        judge(dx, tx, options.bits, input_gradient_operands(g, of.dy.data(), of.w.data()));
        const auto tw = convolve_weight_gradient_log64(g, of.x.data(), of.dy.data(), dw.data(),
                                                       options, threads);
        judge(dw, tw, options.bits, weight_gradient_operands(g, of.x.data(), of.dy.data()));
        logged += ty.size() + tx.size() + tw.size();
      }
    };
    potl::test::at_each_level(at_level, {isa::portable, isa::neon, isa::avx2, isa::avx512});
  }
  CHECK(logged > 0);
}

TEST_CASE("another order of a convolution's terms gives other sums", "[convolution]") {
  std::mt19937 generator(65);
  const convolution g = square(32, 16, 16, 16, 3, 1);
  const operands in(g, inputs::random, generator);
  std::vector<float> y(in.dy.size()), dw(in.w.size());
  const auto differing = [](const std::vector<near_tie>& one, const std::vector<near_tie>& other) {
    int count = 0;
    for (const near_tie& a : one)
      for (const near_tie& b : other) count += a.index == b.index && a.value != b.value ? 1 : 0;
    return count;
  };
  const auto forward = [&](std::uint64_t order) {
    return convolve_log64(g, in.x.data(), in.w.data(), y.data(), {32, order}, inline_executor());
  };
  const auto weights = [&](std::uint64_t order) {
    return convolve_weight_gradient_log64(g, in.x.data(), in.dy.data(), dw.data(), {32, order},
                                          inline_executor());
  };
  CHECK(differing(forward(0), forward(3)) > 0);
  CHECK(differing(weights(0), weights(3)) > 0);
  CHECK(differing(weights(3), weights(3)) == 0);
}

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
  compare(y, reference::forward(arithmetic::cr32, g, in.x, in.w), ty, y2, ty2);
  const auto tx =
      convolve_input_gradient_log64(g, in.dy.data(), in.w.data(), dx.data(), options, one);
  const auto tx2 =
      convolve_input_gradient_log64(g, in.dy.data(), in.w.data(), dx2.data(), other, one);
  compare(dx, reference::input_gradient(arithmetic::cr32, g, in.dy, in.w), tx, dx2, tx2);
  const auto tw =
      convolve_weight_gradient_log64(g, in.x.data(), in.dy.data(), dw.data(), options, one);
  const auto tw2 =
      convolve_weight_gradient_log64(g, in.x.data(), in.dy.data(), dw2.data(), other, one);
  compare(dw, reference::weight_gradient(arithmetic::cr32, g, in.x, in.dy), tw, dw2, tw2);
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

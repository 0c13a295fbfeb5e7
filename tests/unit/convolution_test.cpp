// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/isa.hpp>

#include "catch.hpp"
#include "convolution_inputs.hpp"
#include "convolution_reference.hpp"
#include "guarded_memory.hpp"
#include "long_tests.hpp"
#include "numeric_levels.hpp"

using namespace convolutions;
using namespace potl::numeric;
using potl::test::at_each_level;
using potl::test::is_full;

namespace {

// Runs one direction into guarded memory and compares.
template <class Run>
void check_result(const std::vector<float>& wanted, guarded_end at, const Run& run) {
  guarded<float> result(wanted.size(), at);
  run(result.data());
  CHECK(same_bits(result, wanted));
}

// All three directions against the definition, at each level of this processor, between pages that
// nobody may touch.
void check(arithmetic mode, const convolution& g, inputs kind, std::mt19937& generator,
           const executor& threads, const std::vector<isa>& levels) {
  const operands in(g, kind, generator);
  const auto y = reference::forward(mode, g, in.x, in.w);
  const auto dx = reference::input_gradient(mode, g, in.dy, in.w);
  const auto dw = reference::weight_gradient(mode, g, in.x, in.dy);
  const auto at_level = [&](isa level) {
    for (const guarded_end at : guarded_ends) {
      INFO(to_string(mode) << " " << text(g) << ", level " << to_string(level) << ", threads "
                           << threads.concurrency());
      const guarded_operands of(in, at);
      check_result(y, at,
                   [&](float* to) { convolve(mode, g, of.x.data(), of.w.data(), to, threads); });
      check_result(dx, at, [&](float* to) {
        convolve_input_gradient(mode, g, of.dy.data(), of.w.data(), to, threads);
      });
      check_result(dw, at, [&](float* to) {
        convolve_weight_gradient(mode, g, of.x.data(), of.dy.data(), to, threads);
      });
    }
  };
  at_each_level(at_level, levels);
}

void check(const convolution& g, inputs kind, std::mt19937& generator, const executor& threads) {
  check(arithmetic::ord32, g, kind, generator, threads,
        {isa::portable, isa::neon, isa::avx2, isa::avx512});
}

}  // namespace

TEST_CASE("sampled convolutions have the bits of the definition", "[convolution]") {
  const unsigned seed = 20260;
  std::mt19937 generator(seed);
  const auto pools = {make_thread_pool(1), make_thread_pool(2), make_thread_pool(3),
                      make_thread_pool(7)};
  const int rounds = is_full() ? 400 : 20;
  for (int round = 0; round < rounds; ++round)
    for (const auto& pool : pools)
      check(random_geometry(generator, is_full() && round % 10 == 0 ? 10'000'000 : 300'000),
            static_cast<inputs>(generator() % 3), generator, *pool);
}

TEST_CASE("layers of real networks have the bits of the definition", "[convolution]") {
  std::mt19937 generator(4);
  const auto pool = make_thread_pool(2);
  for (const auto& g :
       {square(2, 3, 16, 32, 3, 1), square(1, 16, 16, 32, 3, 1), square(1, 16, 32, 32, 3, 2),
        square(1, 32, 32, 16, 3, 1), square(3, 64, 64, 8, 3, 1), square(1, 32, 64, 16, 3, 2),
        square(2, 16, 32, 32, 1, 2), square(1, 3, 64, 40, 7, 2), square(5, 65, 33, 7, 1, 1),
        square(2, 30, 29, 14, 3, 1), square(2, 48, 48, 15, 3, 1, 48),
        square(2, 40, 40, 16, 5, 2, 40), square(1, 700, 20, 6, 1, 1)})
    check(g, inputs::hostile, generator, *pool);
}

TEST_CASE("pointwise convolutions have the bits of the definition", "[convolution]") {
  std::mt19937 generator(61);
  const auto pools = {make_thread_pool(1), make_thread_pool(2), make_thread_pool(3),
                      make_thread_pool(4)};
  int turn = 0;
  // Either operand in the lanes, blocks of lanes, chunks apart, a last panel of one vector, runs
  // that end inside of chunks; strips that overlap, of one chunk and of two.
  for (const auto& g :
       {square(3, 64, 112, 14, 1, 1), square(2, 160, 64, 20, 1, 1), square(2, 64, 30, 46, 1, 1),
        square(1, 80, 40, 23, 1, 1), square(9, 320, 21, 7, 1, 1), square(2, 96, 13, 6, 1, 1),
        square(4, 600, 70, 11, 1, 1), square(4, 64, 600, 10, 1, 1)})
    for (const auto& pool : pools) {
      // Every other pool, and the others for the next sizes.
      if ((turn + turn / 4) % 2 == 0 || is_full()) check(g, inputs::hostile, generator, *pool);
      ++turn;
    }
}

TEST_CASE("depthwise convolutions have the bits of the definition", "[convolution]") {
  std::mt19937 generator(31);
  const auto pools = {make_thread_pool(1), make_thread_pool(3)};
  for (int round = 0; round < (is_full() ? 200 : 20); ++round)
    for (const auto& pool : pools) {
      convolution g = random_geometry(generator, 20'000);
      g.in_channels = g.groups = 2 + static_cast<std::int64_t>(generator() % 39);
      g.out_channels = g.groups * (1 + static_cast<std::int64_t>(generator() % 3));
      if (generator() % 4 == 0) std::swap(g.in_channels, g.out_channels);
      check(g, static_cast<inputs>(generator() % 3), generator, *pool);
    }
  // Lines of one to five vectors; windows that are cut; chunk sums that are added in two turns.
  for (const auto& g : {square(1, 3, 3, 72, 3, 1, 3), square(2, 17, 17, 47, 3, 2, 17),
                        square(1, 2, 2, 300, 7, 2, 2), square(1, 2, 2, 330, 3, 1, 2),
                        square(2, 1024, 1024, 60, 3, 1, 1024)})
    check(g, inputs::hostile, generator, *pools.begin()[1]);
}

TEST_CASE("convolutions with channels in the lanes have the bits of the definition",
          "[convolution]") {
  std::mt19937 generator(32);
  const auto pool = make_thread_pool(3);
  convolution deep = square(2, 32, 32, 9, 3, 2, 2);
  deep.input[0] = 5;
  deep.kernel[0] = 2;
  deep.stride[0] = 2;
  deep.dilation = {2, 1, 2};
  check(deep, inputs::hostile, generator, inline_executor());
  for (const auto& g :
       {square(9, 64, 47, 7, 3, 1), square(3, 80, 30, 14, 3, 2), square(2, 34, 64, 15, 5, 3),
        square(1, 64, 16, 60, 3, 1), square(1, 96, 96, 23, 3, 2, 2), square(3, 70, 96, 7, 1, 1),
        square(3, 600, 160, 7, 1, 1), square(2, 64, 64, 14, 1, 2)})
    check(g, static_cast<inputs>(generator() % 3), generator, *pool);
}

TEST_CASE("products of whole images have the bits of the definition", "[convolution]") {
  std::mt19937 generator(34);
  const auto pools = {make_thread_pool(1), make_thread_pool(3)};
  for (const auto& pool : pools)
    check(square(3, 64, 130, 23, 1, 1), inputs::hostile, generator, *pool);
}

TEST_CASE("weight gradients of few channels have the bits of the definition", "[convolution]") {
  std::mt19937 generator(33);
  const auto pool = make_thread_pool(3);
  for (int round = 0; round < (is_full() ? 200 : 10); ++round) {
    convolution g = random_geometry(generator, 20'000);
    g.groups = 1 + static_cast<std::int64_t>(generator() % 2);
    g.in_channels = g.groups * (1 + static_cast<std::int64_t>(generator() % 4));
    g.out_channels = g.groups * 8 * (1 + static_cast<std::int64_t>(generator() % 6));
    check(g, static_cast<inputs>(generator() % 3), generator, *pool);
  }
  check(square(3, 3, 30, 75, 7, 2), inputs::hostile, generator, *pool);
}

TEST_CASE("other modes have the bits of their matrix product", "[convolution]") {
  std::mt19937 generator(77);
  const auto pool = make_thread_pool(2);
  for (int round = 0; round < (is_full() ? 60 : 6); ++round)
    for (const auto mode : {arithmetic::cr32, arithmetic::xint24, arithmetic::xint16})
      check(mode, random_geometry(generator, 60'000), static_cast<inputs>(generator() % 3),
            generator, *pool, {processor_isa()});
}

TEST_CASE("depthwise convolutions of integers have the bits of their matrix product",
          "[convolution]") {
  std::mt19937 generator(39);
  const auto pool = make_thread_pool(2);
  const auto one = [&](arithmetic mode, const convolution& g, inputs kind) {
    check(mode, g, kind, generator, *pool, {isa::portable, isa::avx2, processor_isa()});
  };
  // Numbers that are rounded beyond the largest integer, alone or between others.
  one(arithmetic::xint16, square(2, 24, 24, 40, 3, 1, 24), inputs::bfloat16);
  one(arithmetic::xint24, square(1, 4, 8, 60, 3, 2, 4), inputs::bfloat16);
  for (int round = 0; round < (is_full() ? 60 : 6); ++round)
    for (const auto mode : {arithmetic::xint24, arithmetic::xint16}) {
      convolution g = random_geometry(generator, 20'000);
      g.in_channels = g.groups = 2 + static_cast<std::int64_t>(generator() % 9);
      g.out_channels = g.groups * (1 + static_cast<std::int64_t>(generator() % 2));
      one(mode, g, static_cast<inputs>(generator() % 4));
    }
  one(arithmetic::xint16, square(2, 3, 3, 190, 7, 2, 3), inputs::hostile);
}

TEST_CASE("convolutions of bfloat16 numbers have the bits of xint16", "[convolution]") {
  std::mt19937 generator(38);
  const auto pool = make_thread_pool(3);
  for (const auto& g :
       {square(3, 40, 20, 32, 3, 1), square(2, 17, 33, 30, 3, 2), square(2, 3, 8, 40, 7, 2),
        square(5, 64, 70, 14, 1, 1), square(2, 32, 48, 23, 5, 1, 2), square(3, 300, 15, 7, 1, 1)})
    check(arithmetic::xint16, g, inputs::bfloat16, generator, *pool,
          {isa::avx512, isa::vnni, isa::amx});
}

TEST_CASE("an infinite weight over padding makes NaN, as the definition says", "[convolution]") {
  const convolution g = square(1, 1, 1, 4, 3, 1);
  std::vector<float> x(16, 1.0F), w(9, 1.0F), y(16);
  w[0] = std::numeric_limits<float>::infinity();
  convolve(arithmetic::ord32, g, x.data(), w.data(), y.data(), inline_executor());
  CHECK(std::bit_cast<std::uint32_t>(y[0]) == 0x7fc00000U);
  CHECK(y[5] == std::numeric_limits<float>::infinity());
}

TEST_CASE("empty convolutions write zeros or nothing", "[convolution]") {
  for (const auto mode :
       {arithmetic::ord32, arithmetic::cr32, arithmetic::xint24, arithmetic::xint16}) {
    convolution none = square(0, 3, 5, 8, 3, 1);
    std::vector<float> dw(135, 1.0F);
    convolve_weight_gradient(mode, none, nullptr, nullptr, dw.data(), inline_executor());
    CHECK(dw == std::vector<float>(135, 0.0F));
    convolve(mode, none, nullptr, dw.data(), nullptr, inline_executor());
    convolve_input_gradient(mode, none, nullptr, dw.data(), nullptr, inline_executor());
    none = square(1, 0, 5, 8, 3, 1);
    std::vector<float> y(320, 1.0F);
    convolve(mode, none, nullptr, nullptr, y.data(), inline_executor());
    CHECK(y == std::vector<float>(320, 0.0F));
    convolve_input_gradient(mode, none, y.data(), nullptr, nullptr, inline_executor());
    convolve_weight_gradient(mode, none, nullptr, y.data(), nullptr, inline_executor());
    none = square(1, 5, 0, 8, 3, 1);
    std::vector<float> dx(320, 1.0F);
    convolve_input_gradient(mode, none, nullptr, nullptr, dx.data(), inline_executor());
    CHECK(dx == std::vector<float>(320, 0.0F));
  }
}

TEST_CASE("a geometry that is none is refused", "[convolution]") {
  CHECK_THROWS_AS(square(1, 4, 6, 8, 3, 1, 3).output(), potl::exception);
  CHECK_THROWS_AS(square(1, 4, 6, 8, 3, 0).output(), potl::exception);
  convolution g = square(1, 4, 6, 2, 3, 1);
  g.padding = {0, 0, 0};
  CHECK_THROWS_AS(g.output(), potl::exception);
}

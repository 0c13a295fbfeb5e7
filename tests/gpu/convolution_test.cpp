// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/cuda/convolution.hpp>

#include "catch.hpp"
#include "convolution_inputs.hpp"
#include "device_memory.hpp"

using namespace potl;
using convolutions::inputs;
using numeric::arithmetic;

namespace {

void check(arithmetic mode, const numeric::convolution& g, inputs kind, std::uint64_t number,
           const numeric::executor& workers) {
  std::mt19937 generator(static_cast<unsigned>(number));
  const convolutions::operands from(g, kind, generator);
  std::vector<float> y(from.dy.size(), 7), dx(from.x.size(), 7), dw(from.w.size(), 7);
  const test::device_memory<float> x_there(from.x), w_there(from.w), dy_there(from.dy);
  const test::device_memory<float> y_there(y), dx_there(dx), dw_there(dw);
  cuda::convolve(mode, g, x_there.data(), w_there.data(), y_there.data(), nullptr);
  cuda::convolve_input_gradient(mode, g, dy_there.data(), w_there.data(), dx_there.data(), nullptr);
  cuda::convolve_weight_gradient(mode, g, x_there.data(), dy_there.data(), dw_there.data(),
                                 nullptr);
  convolve(mode, g, from.x.data(), from.w.data(), y.data(), workers);
  convolve_input_gradient(mode, g, from.dy.data(), from.w.data(), dx.data(), workers);
  convolve_weight_gradient(mode, g, from.x.data(), from.dy.data(), dw.data(), workers);
  INFO(convolutions::text(g) << " in " << to_string(mode));
  REQUIRE(convolutions::same_bits(y_there.read(), y));
  REQUIRE(convolutions::same_bits(dx_there.read(), dx));
  REQUIRE(convolutions::same_bits(dw_there.read(), dw));
}

TEST_CASE("convolutions have the CPU's bits on a device", "[gpu][small]") {
  const arithmetic mode =
      GENERATE(arithmetic::ord32, arithmetic::xint24, arithmetic::xint16, arithmetic::cr32);
  std::mt19937 generator(7);
  for (std::uint64_t number = 0; number < 150; ++number) {
    const auto g = convolutions::random_geometry(generator, 300'000);
    check(mode, g, static_cast<inputs>(number % 3), number, numeric::inline_executor());
  }
}

TEST_CASE("convolutions of ResNets have the CPU's bits on a device", "[gpu]") {
  using convolutions::square;
  const arithmetic mode = GENERATE(arithmetic::ord32, arithmetic::xint24);
  const auto pool = numeric::make_thread_pool(8);
  std::uint64_t number = 1000;
  for (const auto& g : {square(4, 3, 64, 224, 7, 2), square(8, 64, 64, 56, 3, 1),
                        square(8, 256, 512, 28, 1, 2), square(128, 16, 32, 32, 3, 2),
                        square(8, 512, 512, 7, 3, 1), square(16, 128, 128, 56, 3, 1)}) {
    check(mode, g, inputs::random, ++number, *pool);
  }
}

TEST_CASE("a convolution in log64 has a function of its own", "[gpu][small]") {
  CHECK_THROWS_AS(cuda::convolve(arithmetic::log64, convolutions::square(1, 1, 1, 3, 3, 1), nullptr,
                                 nullptr, nullptr, nullptr),
                  exception);
}

}  // namespace

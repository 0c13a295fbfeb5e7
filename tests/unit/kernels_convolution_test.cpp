// SPDX-License-Identifier: Apache-2.0
// Convolutions, run by simulated blocks and compared with their definition.
#include <cmath>
#include <random>
#include <vector>

#include <potl/core/error.hpp>

#include "catch.hpp"
#include "convolution_inputs.hpp"
#include "convolution_reference.hpp"
#include "convolutions.hpp"
#include "long_tests.hpp"
#include "modes.hpp"
#include "simulated_device.hpp"

using namespace potl;
using convolutions::inputs;
using numeric::arithmetic;

namespace {

void check(arithmetic mode, const numeric::convolution& g, inputs kind, std::uint64_t number) {
  std::mt19937 generator(static_cast<unsigned>(number));
  const convolutions::operands from(g, kind, generator);
  const test::simulated_device device(number);
  const cuda::product_form form = cuda::plain_form(mode);
  INFO(convolutions::text(g) << " in " << to_string(mode));
  std::vector<float> y(from.dy.size(), 7), dx(from.x.size(), 7), dw(from.w.size(), 7);
  cuda::convolve(device, form, g, from.x.data(), from.w.data(), y.data());
  CHECK(convolutions::same_bits(y, reference::forward(mode, g, from.x, from.w)));
  cuda::convolve_input_gradient(device, form, g, from.dy.data(), from.w.data(), dx.data());
  CHECK(convolutions::same_bits(dx, reference::input_gradient(mode, g, from.dy, from.w)));
  cuda::convolve_weight_gradient(device, form, g, from.x.data(), from.dy.data(), dw.data());
  CHECK(convolutions::same_bits(dw, reference::weight_gradient(mode, g, from.x, from.dy)));
}

TEST_CASE("simulated convolutions and their gradients have the defined bits", "[kernels]") {
  const std::uint64_t cases = potl::test::is_full() ? 600 : 60;
  std::mt19937 generator(7);
  for (std::uint64_t number = 0; number < cases; ++number) {
    const auto g = convolutions::random_geometry(generator, 60'000);
    check(arithmetic::ord32, g, static_cast<inputs>(number % 3), number);
  }
}

TEST_CASE("simulated convolutions in other modes have the defined bits", "[kernels]") {
  const std::uint64_t cases = potl::test::is_full() ? 300 : 12;
  std::mt19937 generator(8);
  for (std::uint64_t number = 0; number < cases; ++number) {
    const auto g = convolutions::random_geometry(generator, 30'000);
    for (const arithmetic mode : {arithmetic::xint24, arithmetic::xint16, arithmetic::cr32})
      check(mode, g, static_cast<inputs>(number % 3), number);
  }
  using convolutions::square;
  for (const auto& g : {square(2, 3, 4, 30, 3, 1), square(2, 6, 6, 9, 3, 2, 6)}) {
    check(arithmetic::xint24, g, inputs::hostile, 1);
  }
}

TEST_CASE("simulated convolutions in log64 have the CPU's results and near ties", "[kernels]") {
  std::mt19937 generator(9);
  std::size_t all = 0;
  for (std::uint64_t number = 0; number < 13; ++number) {
    const auto g = number < 12 ? convolutions::random_geometry(generator, 20'000)
                               : convolutions::square(2, 9, 7, 10, 1, 1);
    convolutions::operands from(g, inputs::random, generator);
    // Few values, and some that are small: sums near ties.
    const auto coarse = [&](std::vector<float>& x) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float value = std::nearbyint(2 * x[i]) * 0.5F;
        x[i] = i % 3 == 0 ? value * 0x1.000002p-24F : value;
      }
    };
    coarse(from.x), coarse(from.w), coarse(from.dy);
    const test::simulated_device device(number);
    const auto& workers = numeric::inline_executor();
    const auto same = [&](std::size_t size, const auto& here, const auto& there) {
      std::vector<float> a(size, 7), b(size, 7);
      std::vector<numeric::near_tie> found;
      const auto wanted = here(a.data());
      there(cuda::logged_form(32, found), b.data());
      cuda::sort_ties(found);
      INFO(convolutions::text(g));
      CHECK(convolutions::same_bits(a, b));
      CHECK(found == wanted);
      all += found.size();
    };
    const float *x = from.x.data(), *w = from.w.data(), *dy = from.dy.data();
    same(
        from.dy.size(),
        [&](float* y) {
          return numeric::convolve_log64(g, x, w, y, {32, 0}, workers);
        },
        [&](const auto& form, float* y) { cuda::convolve(device, form, g, x, w, y); });
    same(
        from.x.size(),
        [&](float* dx) {
          return numeric::convolve_input_gradient_log64(g, dy, w, dx, {32, 0}, workers);
        },
        [&](const auto& form, float* dx) {
          cuda::convolve_input_gradient(device, form, g, dy, w, dx);
        });
    same(
        from.w.size(),
        [&](float* dw) {
          return numeric::convolve_weight_gradient_log64(g, x, dy, dw, {32, 0}, workers);
        },
        [&](const auto& form, float* dw) {
          cuda::convolve_weight_gradient(device, form, g, x, dy, dw);
        });
  }
  CHECK(all > 20);
}

TEST_CASE("simulated convolutions that are products have the defined bits", "[kernels]") {
  using convolutions::square;
  std::uint64_t number = 0;
  // Windows of one place; more than a chunk of 512 each way, and images that are left to gathering.
  for (const auto& g : {square(3, 5, 7, 10, 1, 1), square(2, 520, 3, 10, 1, 1),
                        square(2, 3, 530, 11, 1, 1), square(4, 6, 5, 7, 1, 1)}) {
    for (const arithmetic mode : {arithmetic::ord32, arithmetic::xint24, arithmetic::cr32}) {
      ++number;
      check(mode, g, static_cast<inputs>(number % 3), number);
    }
  }
}

TEST_CASE("simulated convolutions of networks have the defined bits", "[kernels]") {
  using convolutions::square;
  std::uint64_t number = 0;
  // More than a chunk of 512 each way, a stem, a projection, depthwise, and windows that miss
  // inputs.
  for (const auto& g :
       {square(2, 64, 3, 6, 3, 1), square(3, 3, 70, 16, 3, 1), square(1, 3, 8, 18, 7, 2),
        square(2, 16, 24, 8, 1, 2), square(2, 6, 6, 9, 3, 2, 6), square(1, 4, 4, 9, 1, 3, 2)}) {
    check(arithmetic::ord32, g, inputs::hostile, ++number);
  }
}

TEST_CASE("a convolution beyond 32 bits is refused before anything is computed", "[kernels]") {
  const auto g = convolutions::square(1 << 20, 64, 64, 64, 3, 1);
  CHECK_THROWS_AS(cuda::convolve(test::simulated_device(1), {}, g, nullptr, nullptr, nullptr),
                  exception);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
#include "pointwise.hpp"

#include <algorithm>

#include <potl/numeric/gemm.hpp>
#include <potl/numeric/matrix.hpp>

#include "geometry.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

// target = weights * source, per image: the terms of an element are those of the convolution, in
// its order.
void multiply(const convolution& g, matrix<const float> weights, const float* source, float* target,
              const executor& threads) {
  const std::int64_t places = volume(g.input);
  for_each_block(
      threads, static_cast<std::int64_t>(threads.concurrency()), g.batch,
      [&](std::int64_t, std::int64_t n) {
        const matrix<const float> from{source + n * weights.columns * places, weights.columns,
                                       places, places, 1};
        const matrix<float> to{target + n * weights.rows * places, weights.rows, places, places, 1};
        gemm(arithmetic::ord32, weights, from, to, inline_executor());
      });
}

}  // namespace

bool is_product(const convolution& g, const executor& threads) {
  const auto workers = static_cast<std::int64_t>(threads.concurrency());
  const bool shared = g.batch % workers == 0 || g.batch >= 4 * workers;
  return is_pointwise(g) && g.groups == 1 && shared && volume(g.input) >= 512 &&
         std::min(g.in_channels, g.out_channels) >= 64 && g.in_channels + g.out_channels >= 192;
}

void pointwise(const convolution& g, const float* x, const float* w, float* y,
               const executor& threads) {
  multiply(g, {w, g.out_channels, g.in_channels, g.in_channels, 1}, x, y, threads);
}

void pointwise_input_gradient(const convolution& g, const float* dy, const float* w, float* dx,
                              const executor& threads) {
  multiply(g, {w, g.in_channels, g.out_channels, 1, g.in_channels}, dy, dx, threads);
}

}  // namespace potl::numeric::conv

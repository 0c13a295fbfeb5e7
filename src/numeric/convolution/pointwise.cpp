// SPDX-License-Identifier: Apache-2.0
#include "pointwise.hpp"

#include <algorithm>

#include <potl/numeric/gemm.hpp>
#include <potl/numeric/matrix.hpp>

#include "geometry.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

// target = weights * source, per image, from the first on: the terms of an element are those of the
// convolution, in its order.
void multiply(std::int64_t images, matrix<const float> weights, matrix<const float> source,
              matrix<float> target, const executor& threads) {
  for_each_block(threads, static_cast<std::int64_t>(threads.concurrency()), images,
                 [&](std::int64_t, std::int64_t n) {
                   matrix<const float> from = source;
                   matrix<float> to = target;
                   from.data += n * from.rows * from.columns;
                   to.data += n * to.rows * to.columns;
                   gemm(arithmetic::ord32, weights, from, to, inline_executor());
                 });
}

template <class Element>
matrix<Element> channels_of(const convolution& g, Element* image, std::int64_t channels) {
  const std::int64_t places = volume(g.input);
  return {image, channels, places, places, 1};
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
  multiply(g.batch, {w, g.out_channels, g.in_channels, g.in_channels, 1},
           channels_of(g, x, g.in_channels), channels_of(g, y, g.out_channels), threads);
}

void pointwise_input_gradient(const convolution& g, const float* dy, const float* w, float* dx,
                              const executor& threads) {
  multiply(g.batch, {w, g.in_channels, g.out_channels, 1, g.in_channels},
           channels_of(g, dy, g.out_channels), channels_of(g, dx, g.in_channels), threads);
}

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <potl/numeric/convolution.hpp>

#include "rounded_results.hpp"
#include "tile.hpp"

namespace potl::numeric::conv {

void weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                     const kernels& with, const executor& threads);
/// The same by tiles, which serve any shape that has results; weight_gradient() takes a faster way
/// where there is one.
void weight_gradient_tiles(const convolution& g, const float* x, const float* dy, float* dw,
                           const kernels& with, const executor& threads);

/// Sums in double, rounded.
void weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                     const kernels& with, const executor& threads, rounded_results& results);

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// Weight gradients of layers with few input channels, the first of a network: lanes are output
// channels, and rows of a tile are taps. In ord32.
#pragma once

#include "tile.hpp"

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric::conv {

bool has_few_channels(const convolution& g, const kernels& with);
/// weight_gradient() of weight_gradient.hpp for these.
void few_channels_weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                                  const kernels& with, const executor& threads);

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// Weight gradients of pointwise convolutions: one operand is copied into vectors, that with fewer
// channels; the other one is read where it lies, a few of its channels in a tile. In ord32.
#pragma once

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/executor.hpp>

#include "tile.hpp"

namespace potl::numeric::conv {

/// Whether pointwise_weight_gradient() is the faster way.
bool reads_rows(const convolution& g, const kernels& with);
/// weight_gradient() of weight_gradient.hpp for these.
void pointwise_weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                               const kernels& with, const executor& threads);

}  // namespace potl::numeric::conv

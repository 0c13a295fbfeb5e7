// SPDX-License-Identifier: Apache-2.0
// Convolutions that are a matrix product per image: kernels of one place, in ord32.
#pragma once

#include <potl/numeric/convolution.hpp>

#include <potl/numeric/detail/executor.hpp>
#include "tile.hpp"

namespace potl::numeric::conv {

/// Whether products of whole images are the faster way: with AVX-512 alone.
bool is_product(const convolution& g, const kernels& with, const executor& threads);
void pointwise(const convolution& g, const float* x, const float* w, float* y, const kernels& with,
               const executor& threads);
void pointwise_input_gradient(const convolution& g, const float* dy, const float* w, float* dx,
                              const kernels& with, const executor& threads);

}  // namespace potl::numeric::conv

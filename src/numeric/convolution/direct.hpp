// SPDX-License-Identifier: Apache-2.0
// The three directions in ord32, without a library of matrix products.
#pragma once

#include <potl/numeric/convolution.hpp>

namespace potl::numeric::conv {

void forward(const convolution& g, const float* x, const float* w, float* y,
             const executor& threads);
void input_gradient(const convolution& g, const float* dy, const float* w, float* dx,
                    const executor& threads);
void weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                     const executor& threads);

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// Convolutions as matrix products, one bounded block of columns at a
// time: for the integer modes.
#pragma once

#include <functional>

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/matrix.hpp>
#include <potl/numeric/gemm.hpp>

#include "gather.hpp"

namespace potl::numeric::conv {

/// C = A B.
using product = std::function<void(matrix<const float> a, matrix<const float> b, matrix<float> c)>;

void lowered(const gather& what, const product& multiply, const executor& threads);
void lowered_weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                             const product& multiply, const executor& threads);

}  // namespace potl::numeric::conv

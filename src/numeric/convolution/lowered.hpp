// SPDX-License-Identifier: Apache-2.0
// Convolutions as matrix products, one bounded block of columns at a
// time: for the modes that are not ord32.
#pragma once

#include <functional>
#include <vector>

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/gemm.hpp>
#include <potl/numeric/matrix.hpp>

#include "gather.hpp"

namespace potl::numeric::conv {

/// C = A B; returns what is near a tie, if the mode reports that.
using product = std::function<std::vector<near_tie>(matrix<const float> a, matrix<const float> b,
                                                    matrix<float> c)>;

std::vector<near_tie> lowered(const gather& what, const product& multiply, const executor& threads);
std::vector<near_tie> lowered_weight_gradient(const convolution& g, const float* x, const float* dy,
                                              float* dw, const product& multiply,
                                              const executor& threads);

}  // namespace potl::numeric::conv

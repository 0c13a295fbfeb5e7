// SPDX-License-Identifier: Apache-2.0
// Convolutions of many groups with few channels each, in ord32: no operand is shared between
// enough results for a tile, so that lanes are neighbouring results of a plane, or channels.
#pragma once

#include "gather.hpp"

namespace potl::numeric::conv {

/// Whether run_planes() is the faster way.
bool has_planes(const gather& what);
/// run() of gather.hpp, plane by plane.
void run_planes(const gather& what, const kernels& with, const executor& threads);
/// The same of integers of so many bits.
void run_planes_of_integers(int bits, const gather& what, const kernels& with,
                            const executor& threads);

/// Whether every input channel is a group.
bool is_depthwise(const convolution& g);
/// weight_gradient() of weight_gradient.hpp for these.
void depthwise_weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                               const kernels& with, const executor& threads);

}  // namespace potl::numeric::conv

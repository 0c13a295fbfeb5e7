// SPDX-License-Identifier: Apache-2.0
// Convolutions and their gradients on a CUDA device, with the bits of numeric/convolution.hpp.
//
// Claims: the functions of the same names in every mode (docs/reference/convolution.md), for every
// geometry.
// Cost: that of a product of matrices, whose operands are looked up; 16 bytes of the stream's
// memory pool for each position of an image and each weight of a channel. Few channels per group,
// depthwise above all, leave most of a tile idle. The integer modes store the bytes of each window,
// of as many groups at a time as fit into 1 GiB. Graphs may hold the work, but not log64's.
// Cannot: operands of more than 2^31 elements: potl::exception (usage).
#pragma once

#include <vector>

#include <potl/cuda/queue.hpp>
#include <potl/numeric/convolution.hpp>

namespace potl::cuda {

/// Operands are memory of the current device that do not overlap with the result. Queued on
/// `stream`. Throws potl::exception (usage as above and for a geometry that is none, io for an
/// error of the device).
void convolve(numeric::arithmetic mode, const numeric::convolution& geometry, const float* x,
              const float* w, float* y, queue stream);
void convolve_input_gradient(numeric::arithmetic mode, const numeric::convolution& geometry,
                             const float* dy, const float* w, float* dx, queue stream);
void convolve_weight_gradient(numeric::arithmetic mode, const numeric::convolution& geometry,
                              const float* x, const float* dy, float* dw, queue stream);

/// In log64, with sums in an order of the device's; they wait for it.
std::vector<numeric::near_tie> convolve_log64(const numeric::convolution& geometry, const float* x,
                                              const float* w, float* y, int bits, queue stream);
std::vector<numeric::near_tie> convolve_input_gradient_log64(const numeric::convolution& geometry,
                                                             const float* dy, const float* w,
                                                             float* dx, int bits, queue stream);
std::vector<numeric::near_tie> convolve_weight_gradient_log64(const numeric::convolution& geometry,
                                                              const float* x, const float* dy,
                                                              float* dw, int bits, queue stream);

}  // namespace potl::cuda

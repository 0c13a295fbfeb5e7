// SPDX-License-Identifier: Apache-2.0
// The functions of numeric/elementwise.hpp on a CUDA device.
//
// Claims: the same templates as on the CPU (src/numeric/elementwise/functions.hpp), compiled by
// nvcc without contraction or flush-to-zero, so that every result has the bits of the CPU's.
// Cannot: erfinv, which only initial weights need: potl::exception (usage); derivatives in double.
// Cost: one pass over the memory; functions without a float form compute in double.
// The library is built where CMake finds nvcc (POTL_CUDA).
#pragma once

#include <cstddef>

#include <potl/cuda/queue.hpp>
#include <potl/numeric/elementwise.hpp>

namespace potl::cuda {

/// y = function(x) at each of `count` elements; x and y are memory of the current device, and may
/// be the same. Queued on `stream`. Throws potl::exception (usage for a function that is not there,
/// io for an error of the device).
void apply(numeric::unary function, const float* x, float* y, std::size_t count, queue stream);
void apply(numeric::unary function, const double* x, double* y, std::size_t count, queue stream);
/// dx = dy times the derivative at `operand`; dx may be either.
void apply(numeric::gradient function, const float* dy, const float* operand, float* dx,
           std::size_t count, queue stream);

}  // namespace potl::cuda

// SPDX-License-Identifier: Apache-2.0
// Means over windows on a CUDA device, with the bits of numeric/detail/pooling.hpp.
//
// Claims: each mean is the sum over its window in ascending order, divided once; each gradient the
// sum of gradient / divisor in ascending order of the outputs, by one thread.
// Cost: windows are summed directly; a gradient looks at all outputs along each axis.
#pragma once

#include <cstdint>

#include <potl/cuda/queue.hpp>

namespace potl::cuda {

struct pool_windows {
  std::int64_t planes = 0;
  std::int64_t inputs[3] = {1, 1, 1}, outputs[3] = {1, 1, 1};
  /// Memory of the device: begin, end and extent (numeric::pool_window) of each output of the first
  /// axis, then of the second and third. They lie within the inputs: nobody looks.
  const std::int64_t* windows = nullptr;
  std::int64_t divisor = 0;  ///< 0: the product of a window's extents
};

/// x is [planes][inputs...], y is [planes][outputs...]; queued on `stream`. Throw potl::exception
/// (io) for an error of the device.
void pool(const pool_windows& of, const float* x, float* y, queue stream);
void pool_gradient(const pool_windows& of, const float* dy, float* dx, queue stream);

}  // namespace potl::cuda

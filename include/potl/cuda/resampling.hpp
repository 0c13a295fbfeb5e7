// SPDX-License-Identifier: Apache-2.0
// Interpolation along one dimension on a CUDA device, with the bits of
// numeric/detail/resampling.hpp.
//
// Claims: the taps of an output are multiplied and added in their order by one thread, every
// product and every sum rounded for itself. Cost: taps are read from memory for every output.
#pragma once

#include <cstdint>

#include <potl/cuda/queue.hpp>

namespace potl::cuda {

/// A numeric::tap_table, and the shape that it is for: x is [outer][inputs][inner], y is
/// [outer][outputs][inner].
struct resampling {
  std::int64_t outer = 1, inputs = 1, outputs = 1, inner = 1;
  /// Memory of the device; positions lie within the inputs: nobody looks.
  const std::int64_t *first = nullptr, *positions = nullptr;
  const float* weights = nullptr;
};

/// Queued on `stream`. Throws potl::exception (io) for an error of the device.
void resample(const resampling& of, const float* x, float* y, queue stream);

}  // namespace potl::cuda

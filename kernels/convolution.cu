// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/convolution.hpp>

#include "convolutions.hpp"
#include "stream_device.hpp"

namespace potl::cuda {
namespace {

using numeric::arithmetic;
using numeric::convolution;

void require_ordered(arithmetic mode) {
  if (mode != arithmetic::ord32)
    throw exception({errc::usage, "this arithmetic has no CUDA form", "use ord32"});
}

}  // namespace

void convolve(arithmetic mode, const convolution& geometry, const float* x, const float* w,
              float* y, void* stream) {
  require_ordered(mode);
  convolve(stream_device(stream), geometry, x, w, y);
}
void convolve_input_gradient(arithmetic mode, const convolution& geometry, const float* dy,
                             const float* w, float* dx, void* stream) {
  require_ordered(mode);
  convolve_input_gradient(stream_device(stream), geometry, dy, w, dx);
}
void convolve_weight_gradient(arithmetic mode, const convolution& geometry, const float* x,
                              const float* dy, float* dw, void* stream) {
  require_ordered(mode);
  convolve_weight_gradient(stream_device(stream), geometry, x, dy, dw);
}

}  // namespace potl::cuda

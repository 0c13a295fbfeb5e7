// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/convolution.hpp>

#include "convolutions.hpp"
#include "modes.hpp"
#include "stream_device.hpp"

namespace potl::cuda {

using numeric::arithmetic;
using numeric::convolution;

void convolve(arithmetic mode, const convolution& geometry, const float* x, const float* w,
              float* y, void* stream) {
  convolve(stream_device(stream), integer_bits(mode), geometry, x, w, y);
}
void convolve_input_gradient(arithmetic mode, const convolution& geometry, const float* dy,
                             const float* w, float* dx, void* stream) {
  convolve_input_gradient(stream_device(stream), integer_bits(mode), geometry, dy, w, dx);
}
void convolve_weight_gradient(arithmetic mode, const convolution& geometry, const float* x,
                              const float* dy, float* dw, void* stream) {
  convolve_weight_gradient(stream_device(stream), integer_bits(mode), geometry, x, dy, dw);
}

}  // namespace potl::cuda

// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/convolution.hpp>

#include "convolutions.hpp"
#include "modes.hpp"
#include "stream_device.hpp"

namespace potl::cuda {

using numeric::arithmetic;
using numeric::convolution;

void convolve(arithmetic mode, const convolution& geometry, const float* x, const float* w,
              float* y, queue stream) {
  convolve(stream_device(stream), plain_form(mode), geometry, x, w, y);
}
void convolve_input_gradient(arithmetic mode, const convolution& geometry, const float* dy,
                             const float* w, float* dx, queue stream) {
  convolve_input_gradient(stream_device(stream), plain_form(mode), geometry, dy, w, dx);
}
void convolve_weight_gradient(arithmetic mode, const convolution& geometry, const float* x,
                              const float* dy, float* dw, queue stream) {
  convolve_weight_gradient(stream_device(stream), plain_form(mode), geometry, x, dy, dw);
}

namespace {

/// The near ties of a convolution, by ascending index.
template <class Work>
std::vector<numeric::near_tie> logged(int bits, const Work& work) {
  std::vector<numeric::near_tie> ties;
  work(logged_form(bits, ties));
  sort_ties(ties);
  return ties;
}

}  // namespace

std::vector<numeric::near_tie> convolve_log64(const convolution& geometry, const float* x,
                                              const float* w, float* y, int bits, queue stream) {
  return logged(bits, [&](const product_form& form) {
    convolve(stream_device(stream), form, geometry, x, w, y);
  });
}
std::vector<numeric::near_tie> convolve_input_gradient_log64(const convolution& geometry,
                                                             const float* dy, const float* w,
                                                             float* dx, int bits, queue stream) {
  return logged(bits, [&](const product_form& form) {
    convolve_input_gradient(stream_device(stream), form, geometry, dy, w, dx);
  });
}
std::vector<numeric::near_tie> convolve_weight_gradient_log64(const convolution& geometry,
                                                              const float* x, const float* dy,
                                                              float* dw, int bits, queue stream) {
  return logged(bits, [&](const product_form& form) {
    convolve_weight_gradient(stream_device(stream), form, geometry, x, dy, dw);
  });
}

}  // namespace potl::cuda

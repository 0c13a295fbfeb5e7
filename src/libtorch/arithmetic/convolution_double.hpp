// SPDX-License-Identifier: Apache-2.0
// Convolutions in float64: slow and plain, for gradient checks and small scientific models. Windows
// are written out, and multiplied by numeric::gemm_ord64: k runs over (channel, taps); for the
// input gradient over (out channel, taps) of the zero-stuffed gradient; for weights over (batch,
// place). Memory: all windows of one group at once.
#pragma once

#include <potl/numeric/convolution.hpp>

#include <ATen/core/Tensor.h>

namespace potl::libtorch::dispatch {

/// Row-major operands, as numeric::convolve takes them; `sizes` are those of the result.
at::Tensor double_convolution(const numeric::convolution& shape, const at::Tensor& x,
                              const at::Tensor& w, at::IntArrayRef sizes);
at::Tensor double_input_gradient(const numeric::convolution& shape, const at::Tensor& dy,
                                 const at::Tensor& w, at::IntArrayRef sizes);
at::Tensor double_weight_gradient(const numeric::convolution& shape, const at::Tensor& x,
                                  const at::Tensor& dy, at::IntArrayRef sizes);

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers on a CUDA device, with the bits of numeric/combine.hpp.
//
// Claims: sgd() and adam() of numeric/combine.hpp for every tensor, from the same source.
// Cost: every element is read and written once; one launch for 64 tensors. Graphs may hold them.
// Cannot: double; a first step of SGD for some of the tensors alone.
#pragma once

#include <cstddef>
#include <span>

#include <potl/cuda/queue.hpp>
#include <potl/numeric/combine.hpp>

namespace potl::cuda {

/// One parameter, in memory of the current device; `momentum` may be null when there is none.
struct sgd_tensor {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float* momentum = nullptr;
  std::size_t count = 0;
};
/// The same for Adam; `largest` (amsgrad's) is null for all tensors, or for none.
struct adam_tensor {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float *mean = nullptr, *square = nullptr, *largest = nullptr;
  std::size_t count = 0;
};

/// Queued on `stream`. The span is not needed afterwards. Throws potl::exception (usage for a state
/// that is missing, io for an error of the device).
void sgd(const numeric::sgd_options& options, std::span<const sgd_tensor> tensors, queue stream);
void adam(const numeric::adam_options& options, std::span<const adam_tensor> tensors, queue stream);

}  // namespace potl::cuda

// SPDX-License-Identifier: Apache-2.0
// Sums, softmax, losses and norms on a CUDA device, with the bits of the CPU.
//
// Claims: the functions of the same names in numeric/reduction.hpp, numeric/detail/softmax.hpp and
// numeric/detail/normalization.hpp for float, whose order of summation depends on shapes alone.
// Cost: several passes over the operands, and memory for one number a row, channel or chunk of 4096
// terms. It is taken from the queue's memory, so that graphs may hold the work. Cannot: double;
// other reductions than sum, mean, sum_of_squares, norm and maximum; softmax along another
// dimension than the last; the gradient of batch norm out of training. These are potl::exception
// (usage), as is a tensor of more than 2^32 elements.
//
// Operands are memory of the current device, and everything is queued on `stream`. An error of the
// device is potl::exception (io).
#pragma once

#include <cstdint>

#include <potl/cuda/queue.hpp>
#include <potl/numeric/detail/normalization.hpp>
#include <potl/numeric/reduction.hpp>

namespace potl::cuda {

void reduce(numeric::reduction kind, const numeric::reduction_shape& shape, const float* x,
            float* y, queue stream);

/// numeric::variance(), and the mean; shape.count is at least 1.
void variance(const numeric::reduction_shape& shape, const float* x, double correction, float* mean,
              float* result, queue stream);

/// y may be x, and dx may be dy.
void softmax(const numeric::reduction_shape& shape, const float* x, float* y, queue stream);
void log_softmax(const numeric::reduction_shape& shape, const float* x, float* y, queue stream);
/// A number for each row, of which none is empty.
void logsumexp(const numeric::reduction_shape& shape, const float* x, float* y, queue stream);
void softmax_backward(const numeric::reduction_shape& shape, const float* dy, const float* y,
                      float* dx, queue stream);
void log_softmax_backward(const numeric::reduction_shape& shape, const float* dy, const float* y,
                          float* dx, queue stream);

/// A target that is neither a class nor `ignore` has the loss NaN, because a device cannot throw.
void nll_losses(const numeric::reduction_shape& shape, const float* x, const std::int64_t* targets,
                const float* weights, std::int64_t ignore, float* losses, float* sample_weights,
                queue stream);
/// dx = -(dy / total) weights[target] at the target of a sample, 0 elsewhere. dy is one number for
/// all samples, or one for each; `total` is what the mean was divided by, or null; both are on the
/// device.
void nll_backward(const numeric::reduction_shape& shape, const float* dy, const float* total,
                  const std::int64_t* targets, const float* weights, std::int64_t ignore, float* dx,
                  bool by_sample, queue stream);

/// The work of numeric/detail/normalization.hpp, in memory of the device.
void layer_norm(const numeric::layer_norm_forward<float>& work, queue stream);
void layer_norm(const numeric::layer_norm_backward<float>& work, queue stream);
void batch_norm(const numeric::batch_norm_forward<float>& work, queue stream);
void batch_norm(const numeric::batch_norm_backward<float>& work, queue stream);

}  // namespace potl::cuda

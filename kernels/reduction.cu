// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/reduction.hpp>

#include "layers.hpp"
#include "stream_device.hpp"

namespace potl::cuda {

using numeric::reduction_shape;

void reduce(numeric::reduction kind, const reduction_shape& shape, const float* x, float* y,
            queue stream) {
  reduce(stream_device(stream), kind, shape, x, y);
}

void variance(const reduction_shape& shape, const float* x, double correction, float* mean,
              float* result, queue stream) {
  variance(stream_device(stream), shape, x, correction, mean, result);
}

void softmax(const reduction_shape& shape, const float* x, float* y, queue stream) {
  softmax<row_result::softmax>(stream_device(stream), shape, x, y);
}
void log_softmax(const reduction_shape& shape, const float* x, float* y, queue stream) {
  softmax<row_result::log_softmax>(stream_device(stream), shape, x, y);
}
void logsumexp(const reduction_shape& shape, const float* x, float* y, queue stream) {
  softmax<row_result::logsumexp>(stream_device(stream), shape, x, y);
}
void softmax_backward(const reduction_shape& shape, const float* dy, const float* y, float* dx,
                      queue stream) {
  softmax_backward<row_result::softmax_slope>(stream_device(stream), shape, dy, y, dx);
}
void log_softmax_backward(const reduction_shape& shape, const float* dy, const float* y, float* dx,
                          queue stream) {
  softmax_backward<row_result::log_softmax_slope>(stream_device(stream), shape, dy, y, dx);
}

void nll_losses(const reduction_shape& shape, const float* x, const std::int64_t* targets,
                const float* weights, std::int64_t ignore, float* losses, float* sample_weights,
                queue stream) {
  stream_device(stream).each(
      size_of(shape.outer) * size_of(shape.inner),
      target_losses{x, weights, targets, shape.count, shape.inner, ignore, losses, sample_weights});
}
void nll_backward(const reduction_shape& shape, const float* dy, const float* total,
                  const std::int64_t* targets, const float* weights, std::int64_t ignore, float* dx,
                  bool by_sample, queue stream) {
  stream_device(stream).each(
      size_of(shape.outer) * size_of(shape.count) * size_of(shape.inner),
      target_slopes{dy, total, weights, targets, shape.count, shape.inner, ignore, dx, by_sample});
}

void layer_norm(const numeric::layer_norm_forward<float>& work, queue stream) {
  layer_norm(stream_device(stream), work);
}
void layer_norm(const numeric::layer_norm_backward<float>& work, queue stream) {
  layer_norm(stream_device(stream), work);
}
void batch_norm(const numeric::batch_norm_forward<float>& work, queue stream) {
  batch_norm(stream_device(stream), work);
}
void batch_norm(const numeric::batch_norm_backward<float>& work, queue stream) {
  batch_norm(stream_device(stream), work);
}

}  // namespace potl::cuda

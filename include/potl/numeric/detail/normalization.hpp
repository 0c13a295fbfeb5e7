// SPDX-License-Identifier: Apache-2.0
// Layer, group and batch normalisation, forward and backward.
//
// Claims: with T(n) the sum of numeric/reduction.hpp over the n elements of a group, in their order
// in memory, each rounded operation as written:
//   mean = T(x) / n   variance = T((x - mean)^2) / n   r = 1 / sqrt(variance + epsilon)
//   h = (x - mean) r           y = fma(h, weight, bias)  (h * weight, or h + bias, or h when null)
//   g = dy weight     a = T(g) / n     b = T(g h) / n     dx = ((g - a) - h b) r
//   dbias = T(dy)     dweight = T(dy h), over all elements that share the weight, in memory order
// Epsilon and momentum are rounded to the element type. Assumes round-to-nearest without
// flush-to-zero. Null results are not computed. Negative sizes throw potl::exception (usage).
#pragma once

#include <cstdint>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// x is [rows][count]; weight and bias are [count] or null; mean and reciprocal (r) are [rows].
template <class Real>
struct layer_norm_forward {
  std::int64_t rows = 0, count = 0;
  double epsilon = 1e-5;
  const Real *x = nullptr, *weight = nullptr, *bias = nullptr;
  Real *y = nullptr, *mean = nullptr, *reciprocal = nullptr;
};
template <class Real>
struct layer_norm_backward {
  std::int64_t rows = 0, count = 0;
  const Real *dy = nullptr, *x = nullptr, *mean = nullptr, *reciprocal = nullptr;
  const Real* weight = nullptr;
  Real *dx = nullptr, *dweight = nullptr, *dbias = nullptr;
};
void layer_norm(const layer_norm_forward<float>& work, const executor& workers);
void layer_norm(const layer_norm_forward<double>& work, const executor& workers);
void layer_norm(const layer_norm_backward<float>& work, const executor& workers);
void layer_norm(const layer_norm_backward<double>& work, const executor& workers);

/// x is [batch][channels][size]; a group is channels / groups channels of one sample; weight and
/// bias are [channels] or null; mean and reciprocal are [batch][groups].
template <class Real>
struct group_norm_forward {
  std::int64_t batch = 0, channels = 0, size = 0, groups = 1;
  double epsilon = 1e-5;
  const Real *x = nullptr, *weight = nullptr, *bias = nullptr;
  Real *y = nullptr, *mean = nullptr, *reciprocal = nullptr;
};
template <class Real>
struct group_norm_backward {
  std::int64_t batch = 0, channels = 0, size = 0, groups = 1;
  const Real *dy = nullptr, *x = nullptr, *mean = nullptr, *reciprocal = nullptr;
  const Real* weight = nullptr;
  Real *dx = nullptr, *dweight = nullptr, *dbias = nullptr;
};
void group_norm(const group_norm_forward<float>& work, const executor& workers);
void group_norm(const group_norm_forward<double>& work, const executor& workers);
void group_norm(const group_norm_backward<float>& work, const executor& workers);
void group_norm(const group_norm_backward<double>& work, const executor& workers);

/// x is [batch][channels][size]; everything else is [channels]. In training, n = batch * size and
/// running_mean = fma(momentum, mean, running_mean * (1 - momentum)), running_variance the same
/// with T((x - mean)^2) / (n - 1); both may be null. Otherwise mean and r come from the running
/// ones. `mean` and `reciprocal` receive what was used; they may be null.
template <class Real>
struct batch_norm_forward {
  std::int64_t batch = 0, channels = 0, size = 0;
  double epsilon = 1e-5, momentum = 0.1;
  bool training = true;
  const Real *x = nullptr, *weight = nullptr, *bias = nullptr;
  Real *running_mean = nullptr, *running_variance = nullptr;
  Real *y = nullptr, *mean = nullptr, *reciprocal = nullptr;
};
/// Here a = dbias / n and b = dweight / n, and dx = ((dy - a) - h b) (r weight); out of training
/// dx = dy (r weight). `mean` and `reciprocal` are what the forward pass used.
template <class Real>
struct batch_norm_backward {
  std::int64_t batch = 0, channels = 0, size = 0;
  bool training = true;
  const Real *dy = nullptr, *x = nullptr, *mean = nullptr, *reciprocal = nullptr;
  const Real* weight = nullptr;
  Real *dx = nullptr, *dweight = nullptr, *dbias = nullptr;
};
void batch_norm(const batch_norm_forward<float>& work, const executor& workers);
void batch_norm(const batch_norm_forward<double>& work, const executor& workers);
void batch_norm(const batch_norm_backward<float>& work, const executor& workers);
void batch_norm(const batch_norm_backward<double>& work, const executor& workers);

/// [batch][channels][size], of which none is 0.
struct channel_shape {
  std::int64_t batch = 0, channels = 0, size = 0;
};
/// y[c] = T(x) over batch and size: the gradient of a bias.
void sum_channels(const channel_shape& shape, const float* x, float* y, const executor& workers);
void sum_channels(const channel_shape& shape, const double* x, double* y, const executor& workers);

}  // namespace potl::numeric

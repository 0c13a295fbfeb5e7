// SPDX-License-Identifier: Apache-2.0
// Softmax and its relatives along one dimension, and the negative log-likelihood.
//
// Claims: with the exp and log of numeric/elementwise.hpp, the sums T(n) of numeric/reduction.hpp
// and the exact maximum, every result is a function of the values and the shape. m is the maximum
// of the n elements (taken as 0 when it is infinite), s = T(exp(x - m)):
//   softmax      exp(x - m) / s        log_softmax  (x - m) - log(s)       logsumexp  m + log(s)
//   backward     softmax: y (dy - T(dy y));  log_softmax: dy - exp(y) T(dy)
// Where a row is all -inf, softmax gives NaN, as torch does, and logsumexp -inf.
// y may be x, and dx may be dy. Assumes and refuses as numeric/reduction.hpp.
#pragma once

#include <cstdint>

#include <potl/numeric/reduction.hpp>

namespace potl::numeric {

void softmax(const reduction_shape& shape, const float* x, float* y, const executor& workers);
void softmax(const reduction_shape& shape, const double* x, double* y, const executor& workers);
void log_softmax(const reduction_shape& shape, const float* x, float* y, const executor& workers);
void log_softmax(const reduction_shape& shape, const double* x, double* y, const executor& workers);
/// One row, and its logsumexp unless that is null.
void softmax_row(const float* x, float* y, std::int64_t count, float* logsumexp);
void softmax_row(const double* x, double* y, std::int64_t count, double* logsumexp);
/// y is [outer][inner].
void logsumexp(const reduction_shape& shape, const float* x, float* y, const executor& workers);
void logsumexp(const reduction_shape& shape, const double* x, double* y, const executor& workers);

void softmax_backward(const reduction_shape& shape, const float* dy, const float* y, float* dx,
                      const executor& workers);
void softmax_backward(const reduction_shape& shape, const double* dy, const double* y, double* dx,
                      const executor& workers);
void log_softmax_backward(const reduction_shape& shape, const float* dy, const float* y, float* dx,
                          const executor& workers);
void log_softmax_backward(const reduction_shape& shape, const double* dy, const double* y,
                          double* dx, const executor& workers);

/// The loss -w[t] x[t] of each sample; x is [outer][classes = count][inner], targets
/// [outer][inner], weights [classes] or null (1). A sample whose target is `ignore` has loss 0 and
/// weight 0. `losses` and `sample_weights` ([outer][inner], the latter may be null) are to be
/// summed by `reduce`. Any other target out of range throws potl::exception (usage).
void nll_losses(const reduction_shape& shape, const float* x, const std::int64_t* targets,
                const float* weights, std::int64_t ignore, float* losses, float* sample_weights,
                const executor& workers);
void nll_losses(const reduction_shape& shape, const double* x, const std::int64_t* targets,
                const double* weights, std::int64_t ignore, double* losses, double* sample_weights,
                const executor& workers);

/// The gradient of nll_losses: dx, zeros before, is the slope of each sample (or the one of all)
/// times its weight at its target.
/// Throws exception (usage) where a target that is not `ignore` is no class.
void nll_slopes(const reduction_shape& shape, const float* slopes, bool one_slope,
                const std::int64_t* targets, const float* weights, std::int64_t ignore, float* dx,
                const executor& workers);
void nll_slopes(const reduction_shape& shape, const double* slopes, bool one_slope,
                const std::int64_t* targets, const double* weights, std::int64_t ignore, double* dx,
                const executor& workers);

}  // namespace potl::numeric

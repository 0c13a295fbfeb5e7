// SPDX-License-Identifier: Apache-2.0
// Weighted sums of tensors and the updates of optimizers: short lists of IEEE operations with
// explicit fused multiply-adds, where stock kernels differ between instruction sets.
//
// Claims, costs and rules for spans as in numeric/elementwise.hpp. Scalars are given in double and
// rounded once to the element type, as torch does. Formulas: `fma(a, b, c)` is a b + c, rounded
// once; every other operation is rounded for itself, in the order written.
// Each fused update is exactly the sequence of element-wise operations that torch's plain optimizer
// issues, so that its plain, foreach and fused forms give the same bits.
#pragma once

#include <cstdint>
#include <span>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

// Each exists for float and double.

/// fma(alpha, b, a). A span of one element stands for that element at every position.
void add_scaled(std::span<const float> a, std::span<const float> b, double alpha,
                std::span<float> out, const executor& workers);
void add_scaled(std::span<const double> a, std::span<const double> b, double alpha,
                std::span<double> out, const executor& workers);

/// |w| < 1/2: fma(w, b - a, a), else fma(w - 1, b - a, b); w is one element or a span of all.
void lerp(std::span<const float> a, std::span<const float> b, std::span<const float> weight,
          std::span<float> out, const executor& workers);
void lerp(std::span<const double> a, std::span<const double> b, std::span<const double> weight,
          std::span<double> out, const executor& workers);

/// fma(value * b, c, a). Spans of one element as above.
void addcmul(std::span<const float> a, std::span<const float> b, std::span<const float> c,
             double value, std::span<float> out, const executor& workers);
void addcmul(std::span<const double> a, std::span<const double> b, std::span<const double> c,
             double value, std::span<double> out, const executor& workers);

/// fma(value, b / c, a). Spans of one element as above.
void addcdiv(std::span<const float> a, std::span<const float> b, std::span<const float> c,
             double value, std::span<float> out, const executor& workers);
void addcdiv(std::span<const double> a, std::span<const double> b, std::span<const double> c,
             double value, std::span<double> out, const executor& workers);

/// One step of SGD. `maximize` ascends.
struct sgd_options {
  double learning_rate = 0.0;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool maximize = false;
  bool first_step = false;  ///< the momentum buffer holds nothing yet: it becomes the gradient
};

/// g = maximize ? -g : g;  weight_decay != 0: g = fma(weight_decay, p, g);
/// momentum != 0: m = first_step ? g : fma(1 - dampening, g, m * momentum),
///                g = nesterov ? fma(momentum, m, g) : m;
/// p = fma(-learning_rate, g, p).
/// `momentum` has the length of `parameters`, or 0 when options.momentum is 0.
void sgd(const sgd_options& options, std::span<float> parameters, std::span<const float> gradients,
         std::span<float> momentum, const executor& workers);
void sgd(const sgd_options& options, std::span<double> parameters,
         std::span<const double> gradients, std::span<double> momentum, const executor& workers);

/// One step of Adam or AdamW.
struct adam_options {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double weight_decay = 0.0;
  double epsilon = 1e-8;
  double step = 1.0;             ///< counts from 1
  bool decoupled_decay = false;  ///< AdamW
  bool maximize = false;
};

/// With c1 = 1 - exact_pow(beta1, step), c2 = sqrt(1 - exact_pow(beta2, step)) in double:
/// g = maximize ? -g : g;
/// weight_decay != 0: decoupled: p = p * (1 - learning_rate * weight_decay), else g =
/// fma(weight_decay, p, g); m = lerp(m, g, 1 - beta1);  v = addcmul(v * beta2, g, g, 1 - beta2); w
/// = amsgrad ? (u = max(u, v)) : v; p = addcdiv(p, m, sqrt(w) / c2 + epsilon, -(learning_rate /
/// c1)). `largest` (u, amsgrad's) has the length of `parameters`, or 0: no amsgrad.
void adam(const adam_options& options, std::span<float> parameters,
          std::span<const float> gradients, std::span<float> mean, std::span<float> square,
          std::span<float> largest, const executor& workers);
void adam(const adam_options& options, std::span<double> parameters,
          std::span<const double> gradients, std::span<double> mean, std::span<double> square,
          std::span<double> largest, const executor& workers);

// Parametric activations (torch's defaults: softplus beta 1, threshold 20; elu 1, 1, 1).

/// beta x > threshold: x, else softplus(beta x) / beta.
void softplus(std::span<const float> x, double beta, double threshold, std::span<float> y,
              const executor& workers);
void softplus(std::span<const double> x, double beta, double threshold, std::span<double> y,
              const executor& workers);
/// beta x > threshold: dy, else dy sigmoid(beta x).
void softplus_gradient(std::span<const float> dy, std::span<const float> x, double beta,
                       double threshold, std::span<float> dx, const executor& workers);
void softplus_gradient(std::span<const double> dy, std::span<const double> x, double beta,
                       double threshold, std::span<double> dx, const executor& workers);

/// ELU, SELU and CELU by their three factors.
struct elu_options {
  double alpha = 1.0;
  double scale = 1.0;
  double input_scale = 1.0;
};
/// x > 0: x scale, else expm1(x input_scale) (alpha scale).
void elu(const elu_options& options, std::span<const float> x, std::span<float> y,
         const executor& workers);
void elu(const elu_options& options, std::span<const double> x, std::span<double> y,
         const executor& workers);
/// Of x: x > 0: dy scale, else dy input_scale (alpha scale) exp(x input_scale); with `of_result`,
/// operand is y: dy input_scale (y + alpha scale) there.
void elu_gradient(const elu_options& options, bool of_result, std::span<const float> dy,
                  std::span<const float> operand, std::span<float> dx, const executor& workers);
void elu_gradient(const elu_options& options, bool of_result, std::span<const double> dy,
                  std::span<const double> operand, std::span<double> dx, const executor& workers);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Functions of single elements whose bits are the same on every processor: exp, tanh, gelu, pow ...
//
// Claims: each function is one list of IEEE 754 operations (docs/reference/elementwise.md), the
// same at every instruction set level and on a GPU, so that a result depends on the element's value
// alone, not on its position, alignment, neighbours or thread. float32 results are within 1 ulp and
// monotone where the function is; float64 results are within the bounds of
// docs/reference/elementwise.md.
// Assumes: round-to-nearest, no flush-to-zero (numeric/detail/fp_environment.hpp).
// NaN: every NaN result is the canonical quiet one (0x7fc00000, 0x7ff8000000000000).
// Spans of one call have equal lengths (else potl::exception, usage). An output may be the same
// span as an input; otherwise spans do not overlap.
#pragma once

#include <cstdint>
#include <span>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// Functions of one operand.
enum class unary {
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  rsqrt,
  sin,
  cos,
  tan,
  sinh,
  cosh,
  tanh,
  sigmoid,      ///< 1 / (1 + exp(-x))
  log_sigmoid,  ///< min(x, 0) - log1p(exp(-|x|))
  softplus,     ///< max(x, 0) + log1p(exp(-|x|))
  erf,
  erfc,
  erfinv,
  gelu,       ///< x Phi(x), Phi the normal distribution function
  gelu_tanh,  ///< x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  silu,       ///< x sigmoid(x)
  mish,       ///< x tanh(softplus(x))
};

/// Derivatives times the gradient of the output. The operand is x, or y = f(x) where that is what
/// torch keeps.
enum class gradient {
  tanh,         ///< of y: dy (1 - y y)
  sigmoid,      ///< of y: dy (1 - y) y
  log_sigmoid,  ///< of x: dy sigmoid(-x)
  softplus,     ///< of x: dy sigmoid(x)
  gelu,         ///< of x: dy (Phi(x) + x phi(x))
  gelu_tanh,    ///< of x
  silu,         ///< of x: dy s (1 + x (1 - s)), s = sigmoid(x)
  mish,         ///< of x
};

/// Functions of two operands.
enum class binary {
  pow,        ///< as IEEE 754 defines its special cases; x^2 is x x
  logaddexp,  ///< log(exp(x) + exp(y))
  xlogy,      ///< x log(y); 0 where x is 0 and y is not NaN
};

/// The enumerator's name.
const char* to_string(unary function) noexcept;
const char* to_string(gradient function) noexcept;
const char* to_string(binary function) noexcept;

// One element: what the span forms compute at each.
float evaluate(unary function, float x);
double evaluate(unary function, double x);
float evaluate(gradient function, float dy, float operand);
double evaluate(gradient function, double dy, double operand);
float evaluate(binary function, float x, float y);
double evaluate(binary function, double x, double y);

/// y[i] = function(x[i]).
void apply(unary function, std::span<const float> x, std::span<float> y, const executor& workers);
void apply(unary function, std::span<const double> x, std::span<double> y, const executor& workers);

/// dx[i] = dy[i] times the derivative at operand[i].
void apply(gradient function, std::span<const float> dy, std::span<const float> operand,
           std::span<float> dx, const executor& workers);
void apply(gradient function, std::span<const double> dy, std::span<const double> operand,
           std::span<double> dx, const executor& workers);

/// A span of one element stands for that element at every position.
void apply(binary function, std::span<const float> x, std::span<const float> y,
           std::span<float> out, const executor& workers);
void apply(binary function, std::span<const double> x, std::span<const double> y,
           std::span<double> out, const executor& workers);

// Scalars such as 0.999 ** step or a cosine schedule, where a Python float would ask the platform's
// library. exact_log is in statistics/detail/quantile.hpp; all are what `evaluate` gives for
// double.
double exact_exp(double x);
double exact_pow(double x, double y);
double exact_sin(double x);
double exact_cos(double x);

}  // namespace potl::numeric

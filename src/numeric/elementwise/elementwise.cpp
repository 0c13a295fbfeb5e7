// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/elementwise.hpp>

#include "kernels.hpp"
#include "parallel.hpp"

namespace potl::numeric {
namespace elementwise {

namespace {

/// Elements that are worth a task: a short function takes 2 microseconds for them, about what it
/// takes to hand them over.
constexpr std::size_t block = 16384;

template <class Real>
stream<Real> stream_of(std::span<const Real> values) {
  return {values.data(), values.size() == 1 ? std::size_t{0} : std::size_t{1}};
}
template <class Real>
stream<Real> from(stream<Real> values, std::size_t first) {
  return {values.data + values.step * first, values.step};
}

template <class Real>
void apply_one(unary function, std::span<const Real> x, std::span<Real> y,
               const executor& workers) {
  require_lengths(y.size(), {x.size()});
  const auto& kernel = active<Real>();
  for_blocks(y.size(), block, workers, [&](std::size_t first, std::size_t last) {
    kernel.one(function, x.data() + first, y.data() + first, last - first);
  });
}
template <class Real>
void apply_slope(gradient function, std::span<const Real> dy, std::span<const Real> operand,
                 std::span<Real> dx, const executor& workers) {
  require_lengths(dx.size(), {dy.size(), operand.size()});
  const auto& kernel = active<Real>();
  for_blocks(dx.size(), block, workers, [&](std::size_t first, std::size_t last) {
    kernel.slope(function, dy.data() + first, operand.data() + first, dx.data() + first,
                 last - first);
  });
}
template <class Real>
void apply_two(binary function, std::span<const Real> x, std::span<const Real> y,
               std::span<Real> out, const executor& workers) {
  require_lengths_or_one(out.size(), {x.size(), y.size()});
  const auto& kernel = active<Real>();
  const stream<Real> a = stream_of(x), b = stream_of(y);
  for_blocks(out.size(), block, workers, [&](std::size_t first, std::size_t last) {
    kernel.two(function, from(a, first), from(b, first), out.data() + first, last - first);
  });
}

}  // namespace
}  // namespace elementwise

using namespace elementwise;

const char* to_string(unary function) noexcept {
  switch (function) {
    case unary::exp: return "exp";
    case unary::exp2: return "exp2";
    case unary::expm1: return "expm1";
    case unary::log: return "log";
    case unary::log2: return "log2";
    case unary::log10: return "log10";
    case unary::log1p: return "log1p";
    case unary::rsqrt: return "rsqrt";
    case unary::sin: return "sin";
    case unary::cos: return "cos";
    case unary::tan: return "tan";
    case unary::sinh: return "sinh";
    case unary::cosh: return "cosh";
    case unary::tanh: return "tanh";
    case unary::sigmoid: return "sigmoid";
    case unary::log_sigmoid: return "log_sigmoid";
    case unary::softplus: return "softplus";
    case unary::erf: return "erf";
    case unary::erfc: return "erfc";
    case unary::erfinv: return "erfinv";
    case unary::gelu: return "gelu";
    case unary::gelu_tanh: return "gelu_tanh";
    case unary::silu: return "silu";
    case unary::mish: return "mish";
  }
  return "unknown";
}
const char* to_string(gradient function) noexcept {
  switch (function) {
    case gradient::tanh: return "tanh";
    case gradient::sigmoid: return "sigmoid";
    case gradient::log_sigmoid: return "log_sigmoid";
    case gradient::softplus: return "softplus";
    case gradient::gelu: return "gelu";
    case gradient::gelu_tanh: return "gelu_tanh";
    case gradient::silu: return "silu";
    case gradient::mish: return "mish";
  }
  return "unknown";
}
const char* to_string(binary function) noexcept {
  switch (function) {
    case binary::pow: return "pow";
    case binary::logaddexp: return "logaddexp";
    case binary::xlogy: return "xlogy";
  }
  return "unknown";
}

// One element: always the portable form, which is at hand without asking the processor.
float evaluate(unary function, float x) {
  float y = 0;
  portable_kernels().of_float.one(function, &x, &y, 1);
  return y;
}
double evaluate(unary function, double x) {
  double y = 0;
  portable_kernels().of_double.one(function, &x, &y, 1);
  return y;
}
float evaluate(gradient function, float dy, float operand) {
  float dx = 0;
  portable_kernels().of_float.slope(function, &dy, &operand, &dx, 1);
  return dx;
}
double evaluate(gradient function, double dy, double operand) {
  double dx = 0;
  portable_kernels().of_double.slope(function, &dy, &operand, &dx, 1);
  return dx;
}
float evaluate(binary function, float x, float y) {
  float out = 0;
  portable_kernels().of_float.two(function, {&x, 1}, {&y, 1}, &out, 1);
  return out;
}
double evaluate(binary function, double x, double y) {
  double out = 0;
  portable_kernels().of_double.two(function, {&x, 1}, {&y, 1}, &out, 1);
  return out;
}

void apply(unary function, std::span<const float> x, std::span<float> y, const executor& workers) {
  apply_one(function, x, y, workers);
}
void apply(unary function, std::span<const double> x, std::span<double> y,
           const executor& workers) {
  apply_one(function, x, y, workers);
}
void apply(gradient function, std::span<const float> dy, std::span<const float> operand,
           std::span<float> dx, const executor& workers) {
  apply_slope(function, dy, operand, dx, workers);
}
void apply(gradient function, std::span<const double> dy, std::span<const double> operand,
           std::span<double> dx, const executor& workers) {
  apply_slope(function, dy, operand, dx, workers);
}
void apply(binary function, std::span<const float> x, std::span<const float> y,
           std::span<float> out, const executor& workers) {
  apply_two(function, x, y, out, workers);
}
void apply(binary function, std::span<const double> x, std::span<const double> y,
           std::span<double> out, const executor& workers) {
  apply_two(function, x, y, out, workers);
}

double exact_exp(double x) { return evaluate(unary::exp, x); }
double exact_pow(double x, double y) { return evaluate(binary::pow, x, y); }
double exact_sin(double x) { return evaluate(unary::sin, x); }
double exact_cos(double x) { return evaluate(unary::cos, x); }

}  // namespace potl::numeric

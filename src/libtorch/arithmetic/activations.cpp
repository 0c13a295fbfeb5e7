// SPDX-License-Identifier: Apache-2.0
// Activations with parameters, and those that are a few exact operations after one another.
#include <potl/numeric/combine.hpp>
#include <potl/numeric/detail/ieee.hpp>
#include <potl/numeric/elementwise.hpp>

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>

#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;

Tensor softplus(destination to, const Tensor& x, const Scalar& beta, const Scalar& threshold) {
  return elements(
      "softplus", {x}, to,
      [&](const auto& in, auto out) {
        numeric::softplus(in[0], beta.toDouble(), threshold.toDouble(), out, executor());
      },
      combined_there{cuda::combination::softplus, {beta.toDouble(), threshold.toDouble()}});
}
Tensor softplus_backward(const Tensor& gradient, const Tensor& operand, const Scalar& beta,
                         const Scalar& threshold) {
  const auto [dy, x] = broadcast(gradient, operand);
  return elements(
      "softplus_backward", {dy, x}, nullptr,
      [&](const auto& in, auto out) {
        numeric::softplus_gradient(in[0], in[1], beta.toDouble(), threshold.toDouble(), out,
                                   executor());
      },
      combined_there{cuda::combination::softplus_gradient,
                     {beta.toDouble(), threshold.toDouble()}});
}

combined_there elu_there(cuda::combination kind, const numeric::elu_options& of) {
  return {kind, {of.alpha * of.scale, of.scale, of.input_scale}};
}
Tensor elu(destination to, const Tensor& x, const Scalar& alpha, const Scalar& scale,
           const Scalar& input_scale) {
  const numeric::elu_options options = {alpha.toDouble(), scale.toDouble(), input_scale.toDouble()};
  return elements(
      "elu", {x}, to,
      [&](const auto& in, auto out) { numeric::elu(options, in[0], out, executor()); },
      elu_there(cuda::combination::elu, options));
}
Tensor elu_backward(const Tensor& gradient, const Scalar& alpha, const Scalar& scale,
                    const Scalar& input_scale, bool of_result, const Tensor& given) {
  const auto [dy, operand] = broadcast(gradient, given);
  const numeric::elu_options options = {alpha.toDouble(), scale.toDouble(), input_scale.toDouble()};
  const auto kind =
      of_result ? cuda::combination::elu_gradient_of_result : cuda::combination::elu_gradient;
  return elements(
      "elu_backward", {dy, operand}, nullptr,
      [&](const auto& in, auto out) {
        numeric::elu_gradient(options, of_result, in[0], in[1], out, executor());
      },
      elu_there(kind, options));
}

// torch keeps a buffer between the two passes; nothing is in it here.
std::tuple<Tensor, Tensor> log_sigmoid(const Tensor& x) {
  const Tensor y = elements(
      "log_sigmoid", {x}, nullptr,
      [](const auto& in, auto out) {
        numeric::apply(numeric::unary::log_sigmoid, in[0], out, executor());
      },
      [](const device_call& there, const auto& in, float* out, std::size_t count) {
        there->apply(numeric::unary::log_sigmoid, in[0].data, out, count, there.queue());
      });
  return {y, make_beside(x, {0}, x.scalar_type())};
}
Tensor log_sigmoid_backward(const Tensor& gradient, const Tensor& operand, const Tensor&) {
  const auto [dy, x] = broadcast(gradient, operand);
  return elements(
      "log_sigmoid_backward", {dy, x}, nullptr,
      [](const auto& in, auto out) {
        numeric::apply(numeric::gradient::log_sigmoid, in[0], in[1], out, executor());
      },
      [](const device_call& there, const auto& in, float* out, std::size_t count) {
        there->apply(numeric::gradient::log_sigmoid, in[0].data, in[1].data, out, count,
                     there.queue());
      });
}

/// Both halves along a dimension.
std::pair<Tensor, Tensor> halves(const Tensor& x, std::int64_t dim) {
  const std::int64_t size = x.size(dim);
  TORCH_CHECK(size % 2 == 0, "Halving dimension must be even, but dimension ", dim, " is size ",
              size);
  return {x.narrow(dim, 0, size / 2), x.narrow(dim, size / 2, size / 2)};
}
/// Bodies of several operations compute in this, so that they round narrow types once.
Tensor widened(const char* name, const Tensor& x) {
  return x.to(compute_type(name, x.scalar_type()));
}
Tensor glu(const Tensor& x, std::int64_t dim) {
  const auto [a, b] = halves(widened("glu", x), dim);
  return rounded_to(at::sigmoid(b).mul_(a), result_type(x));
}
Tensor glu_backward(const Tensor& dy, const Tensor& x, std::int64_t dim) {
  const auto [a, b] = halves(widened("glu_backward", x), dim);
  const Tensor s = at::sigmoid(b);
  const Tensor da = s * widened("glu_backward", dy);
  return rounded_to(at::cat({da, s.neg().add_(1).mul_(da).mul_(a)}, dim), result_type(dy));
}

// torch's kernels of these give zeros other signs, and NaN other gradients, in the vectors than in
// the elements left over.
void require_shrinkable(const char* name, const Tensor& x, double lambda) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(x.scalar_type()), name, " not implemented for ",
                              x.scalar_type());
  const double most = x.scalar_type() == at::kDouble ? std::numeric_limits<double>::max()
                                                     : std::numeric_limits<float>::max();
  TORCH_CHECK(lambda >= 0 && lambda <= most, name, ": lambda must be in range [0, ", most,
              "], but found ", lambda);
}
Tensor softshrink(destination to, const Tensor& x, const Scalar& lambda) {
  require_shrinkable("softshrink", x, lambda.toDouble());
  return elements(
      "softshrink", {x}, to,
      [&](const auto& in, auto out) {
        numeric::soft_shrink(in[0], lambda.toDouble(), out, executor());
      },
      combined_there{cuda::combination::soft_shrink, {lambda.toDouble()}});
}
/// Of hardshrink and softshrink; the bound is a number of the operands' type.
Tensor shrink_backward(const Tensor& dy, const Tensor& x, const Scalar& lambda) {
  require_shrinkable("shrink_backward", x, 0);
  const double high = at::scalar_tensor(lambda, x.scalar_type()).item().toDouble();
  return elements(
      "shrink_backward", {dy, x}, nullptr,
      [&](const auto& in, auto out) {
        numeric::pass_beyond(in[0], in[1], {-high, high}, out, executor());
      },
      combined_there{cuda::combination::pass_beyond, {-high, high}});
}
Tensor hardtanh_backward(const Tensor& dy, const Tensor& x, const Scalar& low, const Scalar& high) {
  require_shrinkable("hardtanh_backward", x, 0);
  return elements(
      "hardtanh_backward", {dy, x}, nullptr,
      [&](const auto& in, auto out) {
        numeric::pass_between(in[0], in[1], {low.toDouble(), high.toDouble()}, out, executor());
      },
      combined_there{cuda::combination::pass_between, {low.toDouble(), high.toDouble()}});
}

Tensor hardsigmoid(const Tensor& x) {
  return rounded_to(widened("hardsigmoid", x).add(3).clamp_(0, 6).div_(6), result_type(x));
}
Tensor hardsigmoid_backward(const Tensor& dy, const Tensor& x) {
  return hardtanh_backward(dy / 6, x, -3, 3);
}
Tensor hardswish(destination to, const Tensor& x) {
  return elements(
      "hardswish", {x}, to,
      [](const auto& in, auto out) { numeric::hard_swish(in[0], out, executor()); },
      combined_there{cuda::combination::hard_swish});
}
Tensor hardswish_backward(const Tensor& dy, const Tensor& x) {
  return elements(
      "hardswish_backward", {dy, x}, nullptr,
      [](const auto& in, auto out) { numeric::hard_swish_gradient(in[0], in[1], out, executor()); },
      combined_there{cuda::combination::hard_swish_gradient});
}

Tensor logit(const Tensor& x, std::optional<double> epsilon) {
  const Tensor wide = widened("logit", x);
  Tensor within = wide;
  if (epsilon) {
    // Not clamp: of bounds that cross, 0.6 and 0.4, the lower comes first.
    const double low = *epsilon;
    within = at::where(wide < low, low, at::where(wide > 1 - low, 1 - low, wide));
  }
  return rounded_to((within / within.neg().add_(1)).log_(), result_type(x));
}
Tensor logit_backward(const Tensor& dy, const Tensor& given, std::optional<double> epsilon) {
  const Tensor x = widened("logit_backward", given);
  const Tensor inside = widened("logit_backward", dy) / x.neg().add_(1).mul_(x);
  const double low = epsilon.value_or(0);
  const Tensor outside = at::full_like(x, epsilon ? 0.0 : std::numeric_limits<double>::quiet_NaN());
  const Tensor dx = at::where(at::logical_or(x<low, x> 1 - low), outside, inside);
  return rounded_to(dx, result_type(dy));
}

}  // namespace

void register_activations(registrar& r) {
  const char* note = "potl's polynomial";
  r.kernel<softplus>("softplus", note, {"softplus.out"});
  r.kernel<softplus_backward>("softplus_backward", note, {"softplus_backward.grad_input"});
  r.kernel<elu>("elu", note, {"elu_", "elu.out"});
  r.kernel<elu_backward>("elu_backward", note, {"elu_backward.grad_input"});
  r.kernel<log_sigmoid>("log_sigmoid_forward", note, {"log_sigmoid_forward.output"});
  r.kernel<log_sigmoid_backward>("log_sigmoid_backward", note, {"log_sigmoid_backward.grad_input"});
  const char* exact = "exact operations, one after the other";
  r.kernel<glu>("glu", "a sigmoid(b)");
  r.kernel<glu_backward>("glu_backward", "s dy and (1 - s) (s dy) a, s = sigmoid(b)");
  r.kernel<hardsigmoid>("hardsigmoid", exact, {"hardsigmoid_", "hardsigmoid.out"});
  r.kernel<hardsigmoid_backward>("hardsigmoid_backward", exact);
  r.kernel<hardswish>("hardswish", exact, {"hardswish_", "hardswish.out"});
  r.kernel<hardswish_backward>("hardswish_backward", exact);
  r.kernel<softshrink>("softshrink", "x - lambda, x + lambda or +0", {"softshrink.out"});
  const char* gate = "dy, or +0 where the function is constant or x is NaN";
  r.kernel<shrink_backward>("softshrink_backward", gate, {"softshrink_backward.grad_input"});
  r.kernel<shrink_backward>("hardshrink_backward", gate, {"hardshrink_backward.grad_input"});
  r.kernel<hardtanh_backward>("hardtanh_backward", gate, {"hardtanh_backward.grad_input"});
  r.kernel<logit>("logit", "log(x / (1 - x))", {"logit_", "logit.out"});
  r.kernel<logit_backward>("logit_backward", "dy / (x (1 - x))");
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// Activations with parameters, and those that are a few exact operations after one another.
#include <potl/numeric/combine.hpp>
#include <potl/numeric/elementwise.hpp>
#include <potl/numeric/ieee.hpp>

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;

Tensor softplus_of(const Tensor& x, const Scalar& beta, const Scalar& threshold) {
  return elements("softplus", {x}, nullptr, [&](const auto& in, auto out) {
    numeric::softplus(in[0], beta.toDouble(), threshold.toDouble(), out, executor());
  });
}
Tensor& softplus_out(const Tensor& x, const Scalar& beta, const Scalar& threshold, Tensor& out) {
  return write_out(softplus_of(x, beta, threshold), out);
}
Tensor softplus_backward_of(const Tensor& dy, const Tensor& x, const Scalar& beta,
                            const Scalar& threshold) {
  return elements("softplus_backward", {dy.expand_as(x), x}, nullptr,
                  [&](const auto& in, auto out) {
                    numeric::softplus_gradient(in[0], in[1], beta.toDouble(), threshold.toDouble(),
                                               out, executor());
                  });
}
Tensor& softplus_backward_out(const Tensor& dy, const Tensor& x, const Scalar& beta,
                              const Scalar& threshold, Tensor& out) {
  return write_out(softplus_backward_of(dy, x, beta, threshold), out);
}

Tensor elu_to(const Tensor& x, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale,
              const Tensor* in_place) {
  const numeric::elu_options options = {alpha.toDouble(), scale.toDouble(), input_scale.toDouble()};
  return elements("elu", {x}, in_place,
                  [&](const auto& in, auto out) { numeric::elu(options, in[0], out, executor()); });
}
Tensor elu_of(const Tensor& x, const Scalar& alpha, const Scalar& scale,
              const Scalar& input_scale) {
  return elu_to(x, alpha, scale, input_scale, nullptr);
}
Tensor& elu_in(Tensor& x, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale) {
  elu_to(x, alpha, scale, input_scale, &x);
  return x;
}
Tensor& elu_out(const Tensor& x, const Scalar& alpha, const Scalar& scale,
                const Scalar& input_scale, Tensor& out) {
  return write_out(elu_of(x, alpha, scale, input_scale), out);
}
Tensor elu_backward_of(const Tensor& dy, const Scalar& alpha, const Scalar& scale,
                       const Scalar& input_scale, bool of_result, const Tensor& operand) {
  const numeric::elu_options options = {alpha.toDouble(), scale.toDouble(), input_scale.toDouble()};
  return elements("elu_backward", {dy.expand_as(operand), operand}, nullptr,
                  [&](const auto& in, auto out) {
                    numeric::elu_gradient(options, of_result, in[0], in[1], out, executor());
                  });
}
Tensor& elu_backward_out(const Tensor& dy, const Scalar& alpha, const Scalar& scale,
                         const Scalar& input_scale, bool of_result, const Tensor& operand,
                         Tensor& out) {
  return write_out(elu_backward_of(dy, alpha, scale, input_scale, of_result, operand), out);
}

// torch keeps a buffer between the two passes; nothing is in it here.
std::tuple<Tensor, Tensor> log_sigmoid(const Tensor& x) {
  const Tensor y = elements("log_sigmoid", {x}, nullptr, [](const auto& in, auto out) {
    numeric::apply(numeric::unary::log_sigmoid, in[0], out, executor());
  });
  return {y, make({0}, x.scalar_type())};
}
Tensor log_sigmoid_backward_of(const Tensor& dy, const Tensor& x, const Tensor&) {
  return elements("log_sigmoid_backward", {dy.expand_as(x), x}, nullptr,
                  [](const auto& in, auto out) {
                    numeric::apply(numeric::gradient::log_sigmoid, in[0], in[1], out, executor());
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
Tensor glu_of(const Tensor& x, std::int64_t dim) {
  const auto [a, b] = halves(widened("glu", x), dim);
  return rounded_to(at::sigmoid(b).mul_(a), result_type(x));
}
Tensor glu_backward_of(const Tensor& dy, const Tensor& x, std::int64_t dim) {
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
Tensor softshrink_of(const Tensor& x, const Scalar& lambda) {
  require_shrinkable("softshrink", x, lambda.toDouble());
  return elements("softshrink", {x}, nullptr, [&](const auto& in, auto out) {
    numeric::soft_shrink(in[0], lambda.toDouble(), out, executor());
  });
}
/// Of hardshrink and softshrink; the bound is a number of the operands' type.
Tensor shrink_backward_of(const Tensor& dy, const Tensor& x, const Scalar& lambda) {
  require_shrinkable("shrink_backward", x, 0);
  const double high = at::scalar_tensor(lambda, x.scalar_type()).item().toDouble();
  return elements("shrink_backward", {dy, x}, nullptr, [&](const auto& in, auto out) {
    numeric::pass_beyond(in[0], in[1], {-high, high}, out, executor());
  });
}
Tensor hardtanh_backward_of(const Tensor& dy, const Tensor& x, const Scalar& low,
                            const Scalar& high) {
  require_shrinkable("hardtanh_backward", x, 0);
  return elements("hardtanh_backward", {dy, x}, nullptr, [&](const auto& in, auto out) {
    numeric::pass_between(in[0], in[1], {low.toDouble(), high.toDouble()}, out, executor());
  });
}

/// min(max(x + 3, 0), 6)
Tensor ramp(const Tensor& x) { return x.add(3).clamp_(0, 6); }
Tensor hardsigmoid_of(const Tensor& x) {
  return rounded_to(ramp(widened("hardsigmoid", x)).div_(6), result_type(x));
}
Tensor& hardsigmoid_in(Tensor& x) { return x.copy_(hardsigmoid_of(x)); }
Tensor& hardsigmoid_out(const Tensor& x, Tensor& out) { return write_out(hardsigmoid_of(x), out); }
Tensor hardsigmoid_backward_of(const Tensor& dy, const Tensor& x) {
  return at::where(at::logical_and(x > -3, x < 3), dy / 6, Scalar(0));
}
Tensor hardswish_of(const Tensor& x) {
  const Tensor wide = widened("hardswish", x);
  return rounded_to(ramp(wide).mul_(wide).div_(6), result_type(x));
}
Tensor& hardswish_in(Tensor& x) { return x.copy_(hardswish_of(x)); }
Tensor& hardswish_out(const Tensor& x, Tensor& out) { return write_out(hardswish_of(x), out); }
Tensor hardswish_backward_of(const Tensor& dy, const Tensor& x) {
  const Tensor wide = widened("hardswish_backward", dy);
  const Tensor middle = widened("hardswish_backward", x).div(3).add_(0.5).mul_(wide);
  const Tensor dx = at::where(x < -3, at::zeros_like(wide), at::where(x <= 3, middle, wide));
  return rounded_to(dx, result_type(dy));
}

Tensor logit_of(const Tensor& x, std::optional<double> epsilon) {
  const Tensor wide = widened("logit", x);
  const Tensor within = epsilon ? wide.clamp(*epsilon, 1 - *epsilon) : wide;
  return rounded_to((within / within.neg().add_(1)).log_(), result_type(x));
}
Tensor& logit_in(Tensor& x, std::optional<double> epsilon) { return x.copy_(logit_of(x, epsilon)); }
Tensor& logit_out(const Tensor& x, std::optional<double> epsilon, Tensor& out) {
  return write_out(logit_of(x, epsilon), out);
}
Tensor logit_backward_of(const Tensor& dy, const Tensor& given, std::optional<double> epsilon) {
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
  r.kernel("softplus", TORCH_FN(softplus_of), note);
  r.kernel("softplus.out", TORCH_FN(softplus_out), note);
  r.kernel("softplus_backward", TORCH_FN(softplus_backward_of), note);
  r.kernel("softplus_backward.grad_input", TORCH_FN(softplus_backward_out), note);
  r.kernel("elu", TORCH_FN(elu_of), note);
  r.kernel("elu_", TORCH_FN(elu_in), note);
  r.kernel("elu.out", TORCH_FN(elu_out), note);
  r.kernel("elu_backward", TORCH_FN(elu_backward_of), note);
  r.kernel("elu_backward.grad_input", TORCH_FN(elu_backward_out), note);
  r.kernel("log_sigmoid_forward", TORCH_FN(log_sigmoid), note);
  r.derived("log_sigmoid_forward", {"log_sigmoid_forward.output"});
  r.kernel("log_sigmoid_backward", TORCH_FN(log_sigmoid_backward_of), note);
  r.derived("log_sigmoid_backward", {"log_sigmoid_backward.grad_input"});
  const char* exact = "exact operations, one after the other";
  r.kernel("glu", TORCH_FN(glu_of), "a sigmoid(b)");
  r.kernel("glu_backward", TORCH_FN(glu_backward_of), "s dy and (1 - s) (s dy) a, s = sigmoid(b)");
  r.kernel("hardsigmoid", TORCH_FN(hardsigmoid_of), exact);
  r.kernel("hardsigmoid_", TORCH_FN(hardsigmoid_in), exact);
  r.kernel("hardsigmoid.out", TORCH_FN(hardsigmoid_out), exact);
  r.kernel("hardsigmoid_backward", TORCH_FN(hardsigmoid_backward_of), exact);
  r.kernel("hardswish", TORCH_FN(hardswish_of), exact);
  r.kernel("hardswish_", TORCH_FN(hardswish_in), exact);
  r.kernel("hardswish.out", TORCH_FN(hardswish_out), exact);
  r.kernel("hardswish_backward", TORCH_FN(hardswish_backward_of), exact);
  r.kernel("softshrink", TORCH_FN(softshrink_of), "x - lambda, x + lambda or +0");
  r.derived("softshrink", {"softshrink.out"});
  const char* gate = "dy, or +0 where the function is constant or x is NaN";
  r.kernel("softshrink_backward", TORCH_FN(shrink_backward_of), gate);
  r.derived("softshrink_backward", {"softshrink_backward.grad_input"});
  r.kernel("hardshrink_backward", TORCH_FN(shrink_backward_of), gate);
  r.derived("hardshrink_backward", {"hardshrink_backward.grad_input"});
  r.kernel("hardtanh_backward", TORCH_FN(hardtanh_backward_of), gate);
  r.derived("hardtanh_backward", {"hardtanh_backward.grad_input"});
  r.kernel("logit", TORCH_FN(logit_of), "log(x / (1 - x))");
  r.kernel("logit_", TORCH_FN(logit_in), "log(x / (1 - x))");
  r.kernel("logit.out", TORCH_FN(logit_out), "log(x / (1 - x))");
  r.kernel("logit_backward", TORCH_FN(logit_backward_of), "dy / (x (1 - x))");
  r.refused({"rrelu_with_noise", "rrelu_with_noise_"}, "use leaky_relu");
}

}  // namespace potl::libtorch::dispatch

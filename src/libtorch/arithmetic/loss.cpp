// SPDX-License-Identifier: Apache-2.0
// Losses and their gradients: exact elementwise operations in the order written, and the sums of
// docs/reference/reduction.md. bfloat16 and float16 are computed in float32 and rounded once.
#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include <ATen/ops/abs.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/softmax.hpp>
#include <potl/numeric/reduction.hpp>

#include "choices.hpp"
#include "device.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using optional_tensor = std::optional<at::Tensor>;

enum reduction_kind : std::int64_t { none = 0, mean = 1, sum = 2 };

at::Tensor reduced(const at::Tensor& losses, std::int64_t reduction) {
  if (reduction == mean) return losses.mean();
  return reduction == sum ? losses.sum() : losses;
}

/// 1 / count when the loss is a mean.
double share(const at::Tensor& x, std::int64_t reduction) {
  return reduction == mean ? 1.0 / static_cast<double>(x.numel()) : 1.0;
}

/// Operands in the type that is computed in.
struct pair {
  pair(const char* name, const at::Tensor& x, const at::Tensor& y)
      : result(c10::promoteTypes(x.scalar_type(), y.scalar_type())),
        type(compute_type(name, result)),
        a(x.to(type)),
        b(y.to(type)) {}
  c10::ScalarType result, type;
  at::Tensor a, b;
};

at::Tensor mse(const at::Tensor& x, const at::Tensor& y, std::int64_t reduction) {
  const pair p("mse_loss", x, y);
  const at::Tensor difference = p.a - p.b;
  return rounded_to(reduced(difference * difference, reduction), p.result);
}

at::Tensor mse_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                        std::int64_t reduction) {
  const pair p("mse_loss_backward", x, y);
  return rounded_to((p.a - p.b) * (2.0 * share(x, reduction)) * dy.to(p.type), p.result);
}

at::Tensor smooth_l1(const at::Tensor& x, const at::Tensor& y, std::int64_t reduction,
                     double beta) {
  const pair p("smooth_l1_loss", x, y);
  const at::Tensor z = (p.a - p.b).abs_();
  if (beta == 0) return rounded_to(reduced(z, reduction), p.result);
  const at::Tensor near = (z * 0.5).mul_(z).div_(beta);
  return rounded_to(reduced(if_below(z, beta, near, z - 0.5 * beta, near), reduction), p.result);
}

at::Tensor smooth_l1_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                              std::int64_t reduction, double beta) {
  const pair p("smooth_l1_loss_backward", x, y);
  const at::Tensor z = p.a - p.b;
  const at::Tensor slope = z.sign();
  if (beta != 0) {
    const at::Tensor size = z.abs();
    if_below(size, beta, z.div_(beta), slope, slope);
  }
  return rounded_to(slope.mul_(share(x, reduction)).mul_(dy.to(p.type)), p.result);
}

at::Tensor huber(const at::Tensor& x, const at::Tensor& y, std::int64_t reduction, double delta) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
  const pair p("huber_loss", x, y);
  const at::Tensor z = (p.a - p.b).abs_();
  const at::Tensor near = (z * 0.5).mul_(z), far = (z - 0.5 * delta).mul_(delta);
  return rounded_to(reduced(if_below(z, delta, near, far, near), reduction), p.result);
}

at::Tensor huber_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                          std::int64_t reduction, double delta) {
  const pair p("huber_loss_backward", x, y);
  const at::Tensor slope = (p.a - p.b).clamp_(-delta, delta);
  return rounded_to(slope.mul(share(x, reduction)).mul_(dy.to(p.type)), p.result);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& y, const optional_tensor& weight,
                         std::int64_t reduction) {
  const pair p("binary_cross_entropy", x, y);
  TORCH_CHECK(((p.a >= 0) & (p.a <= 1)).all().item<bool>(),
              "all elements of input should be between 0 and 1");
  const at::Tensor if_one = at::clamp(at::log(p.a), -100.0);
  const at::Tensor if_zero = at::clamp(at::log1p(p.a.neg()), -100.0);
  at::Tensor losses = (p.b - 1) * if_zero - p.b * if_one;
  if (weight.has_value() && weight->defined()) losses = losses * weight->to(p.type);
  return rounded_to(reduced(losses, reduction), p.result);
}

at::Tensor cross_entropy_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                                  const optional_tensor& weight, std::int64_t reduction) {
  const pair p("binary_cross_entropy_backward", x, y);
  at::Tensor slope = (p.a - p.b) / at::clamp((1 - p.a) * p.a, 1e-12);
  if (weight.has_value() && weight->defined()) slope = slope * weight->to(p.type);
  return rounded_to(slope * share(x, reduction) * dy.to(p.type), p.result);
}

/// Errors of the call are those of an index, as in torch.
template <class Call>
void indexed(const char* name, const Call& call) {
  try {
    call();
  } catch (const exception& error) {
    TORCH_CHECK_INDEX(false, name, ": ", error.details().message);
  }
}

/// x is [batch, classes, places...], or [classes] with one target.
struct samples {
  samples(operator_name name, const at::Tensor& x, const at::Tensor& target) {
    TORCH_CHECK(x.dim() >= 1, name.text, ": input tensor should have at least 1 dimension");
    const std::int64_t axis = x.dim() == 1 ? 0 : 1;
    shape = {product(x.sizes(), 0, axis), x.size(axis), product(x.sizes(), axis + 1, x.dim())};
    TORCH_CHECK(target.numel() == shape.outer * shape.inner, name.text, ": the input has shape ",
                x.sizes(), ", the target ", target.sizes());
    TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte, name.text,
                ": expected a target of type int64 or uint8");
    require_one_device(name, x, target);
    targets = row_major(name, target, at::kLong);
  }
  /// How many have a weight.
  std::int64_t counted(std::int64_t ignore) const {
    const auto* first = targets.const_data_ptr<std::int64_t>();
    return targets.numel() - std::count(first, first + targets.numel(), ignore);
  }
  numeric::reduction_shape shape;
  at::Tensor targets;
};

/// Undefined where there are none.
at::Tensor class_weights(operator_name name, const optional_tensor& weight, std::int64_t classes,
                         c10::ScalarType type) {
  const at::Tensor weights = value_or_undefined(weight);
  if (!weights.defined()) return weights;
  TORCH_CHECK(weights.numel() == classes, name.text, ": expected ", classes, " weights, got ",
              weights.sizes());
  return row_major(name, weights, type);
}

/// NaN with the bits that the CPU gives it.
at::Tensor with_one_nan(const at::Tensor& x) {
  return at::where(x.isnan(), at::Scalar(std::numeric_limits<double>::quiet_NaN()), x);
}

std::tuple<at::Tensor, at::Tensor> nll_there(const samples& all, const at::Tensor& x,
                                             const at::Tensor& target, const at::Tensor& weights,
                                             std::int64_t reduction, std::int64_t ignore) {
  const at::Tensor losses = make_beside(x, target.sizes(), at::kFloat);
  const at::Tensor used = weights.defined() ? at::empty_like(losses) : at::Tensor();
  {
    const device_call there(x);
    there->nll_losses(all.shape, x.const_data_ptr<float>(),
                      all.targets.const_data_ptr<std::int64_t>(),
                      weights.defined() ? weights.const_data_ptr<float>() : nullptr, ignore,
                      losses.mutable_data_ptr<float>(),
                      weights.defined() ? used.mutable_data_ptr<float>() : nullptr, there.queue());
  }
  if (reduction == none) return {losses, at::zeros({}, losses.options())};
  const at::Tensor total =
      weights.defined() ? used.sum() : (all.targets != ignore).sum().to(at::kFloat);
  const at::Tensor sum = losses.sum();
  return {with_one_nan(reduction == mean ? sum / total : sum), total};
}

std::tuple<at::Tensor, at::Tensor> nll(const at::Tensor& x, const at::Tensor& target,
                                       const optional_tensor& weight, std::int64_t reduction,
                                       std::int64_t ignore) {
  constexpr operator_name name = on_devices("nll_loss");
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  const samples all(name, x, target);
  require_one_device(name, x, weight);
  const at::Tensor from = row_major(name, x, type);
  const at::Tensor weights = class_weights(name, weight, all.shape.count, type);
  if (is_on_device(x)) {
    auto [loss, total] = nll_there(all, from, target, weights, reduction, ignore);
    return {rounded_to(loss, x.scalar_type()), total};
  }
  const at::Tensor losses = make(target.sizes(), type);
  const at::Tensor sample_weights = weights.defined() ? make(target.sizes(), type) : at::Tensor();
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    indexed(name.text, [&] {
      numeric::nll_losses(
          all.shape, from.const_data_ptr<Real>(), all.targets.const_data_ptr<std::int64_t>(),
          weights.defined() ? weights.const_data_ptr<Real>() : nullptr, ignore,
          losses.mutable_data_ptr<Real>(),
          weights.defined() ? sample_weights.mutable_data_ptr<Real>() : nullptr, executor());
    });
  });
  const at::Tensor total = make({}, type), total_weight = make({}, type);
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    const auto sum = [&](const at::Tensor& of) {
      Real value;
      numeric::reduce(numeric::reduction::sum, {1, of.numel(), 1}, of.const_data_ptr<Real>(),
                      &value, executor());
      return value;
    };
    Real& weight_of_all = *total_weight.mutable_data_ptr<Real>();
    if (reduction == none) {
      weight_of_all = 0;
      return;
    }
    weight_of_all =
        weights.defined() ? sum(sample_weights) : static_cast<Real>(all.counted(ignore));
    const Real value = reduction == mean ? sum(losses) / weight_of_all : sum(losses);
    *total.mutable_data_ptr<Real>() =
        value == value ? value : std::numeric_limits<Real>::quiet_NaN();
  });
  return {rounded_to(reduction == none ? losses : total, x.scalar_type()), total_weight};
}

at::Tensor nll_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& target,
                        const optional_tensor& weight, std::int64_t reduction, std::int64_t ignore,
                        const at::Tensor& total_weight) {
  constexpr operator_name name = on_devices("nll_loss_backward");
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  const samples all(name, x, target);
  require_one_device(name, x, dy, weight, total_weight);
  const at::Tensor dx = make_beside(x, x.sizes(), type);
  TORCH_CHECK(dy.numel() == (reduction == none ? target.numel() : 1), name.text,
              ": the target has shape ", target.sizes(), ", the gradient ", dy.sizes());
  const bool is_negated = reduction == none && !is_on_device(x);
  const at::Tensor slopes = row_major(name, is_negated ? dy.neg() : dy, type);
  const at::Tensor divisor = reduction == mean ? row_major(name, total_weight, type) : at::Tensor();
  TORCH_CHECK(reduction != mean || divisor.numel() == 1, name.text, ": the total weight has shape ",
              total_weight.sizes());
  const at::Tensor weights = class_weights(name, weight, all.shape.count, type);
  if (is_on_device(x)) {
    const device_call there(x);
    there->nll_backward(all.shape, slopes.const_data_ptr<float>(),
                        divisor.defined() ? divisor.const_data_ptr<float>() : nullptr,
                        all.targets.const_data_ptr<std::int64_t>(),
                        weights.defined() ? weights.const_data_ptr<float>() : nullptr, ignore,
                        dx.mutable_data_ptr<float>(), reduction == none, there.queue());
    return rounded_to(dx, x.scalar_type());
  }
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    if (dx.numel() != 0) std::memset(dx.mutable_data_ptr(), 0, dx.nbytes());  // +0
    const Real* each = slopes.const_data_ptr<Real>();
    const Real one =
        reduction == none
            ? Real{0}
            : -(*each / (reduction == mean ? *divisor.const_data_ptr<Real>() : Real{1}));
    indexed(name.text, [&] {
      numeric::nll_slopes(all.shape, reduction == none ? each : &one, reduction != none,
                          all.targets.const_data_ptr<std::int64_t>(),
                          weights.defined() ? weights.const_data_ptr<Real>() : nullptr, ignore,
                          dx.mutable_data_ptr<Real>(), executor());
    });
  });
  return rounded_to(dx, x.scalar_type());
}

}  // namespace

void register_loss(registrar& r) {
  r.kernel<mse>("mse_loss", "d d, d = a - b", {"mse_loss.out"});
  r.kernel<mse_backward>("mse_loss_backward", "(d (2 / n)) dy", {"mse_loss_backward.grad_input"});
  r.kernel<smooth_l1>("smooth_l1_loss",
                      "z = |a - b|; z < beta: ((z / 2) z) / beta, else z - beta / 2",
                      {"smooth_l1_loss.out"});
  r.kernel<smooth_l1_backward>("smooth_l1_loss_backward", "(slope (1 / n)) dy",
                               {"smooth_l1_loss_backward.grad_input"});
  r.kernel<huber>("huber_loss", "z = |a - b|; z < delta: (z / 2) z, else (z - delta / 2) delta",
                  {"huber_loss.out"});
  r.kernel<huber_backward>("huber_loss_backward", "(slope (1 / n)) dy",
                           {"huber_loss_backward.out"});
  r.kernel<cross_entropy>("binary_cross_entropy",
                          "(y - 1) max(log1p(-x), -100) - y max(log(x), -100)",
                          {"binary_cross_entropy.out"});
  r.kernel<cross_entropy_backward>("binary_cross_entropy_backward",
                                   "(((x - y) / max((1 - x) x, 1e-12)) (1 / n)) dy",
                                   {"binary_cross_entropy_backward.grad_input"});
  const char* loss = "-w x of each sample; the mean divides their sum by the sum of the weights";
  const char* slope = "-(dy / sum of weights) w at the target";
  r.kernel<nll>("nll_loss_forward", loss, {"nll_loss_forward.output"});
  r.kernel<nll_backward>("nll_loss_backward", slope, {"nll_loss_backward.grad_input"});
  r.kernel<nll>("nll_loss2d_forward", loss, {"nll_loss2d_forward.output"});
  r.kernel<nll_backward>("nll_loss2d_backward", slope, {"nll_loss2d_backward.grad_input"});
  r.composed({"soft_margin_loss", "soft_margin_loss.out", "soft_margin_loss_backward",
              "soft_margin_loss_backward.grad_input"},
             "exp, log1p and products");
  r.refused({"multi_margin_loss", "multi_margin_loss.out", "multi_margin_loss_backward",
             "multi_margin_loss_backward.grad_input", "multilabel_margin_loss_forward",
             "multilabel_margin_loss_forward.output", "multilabel_margin_loss_backward",
             "multilabel_margin_loss_backward.grad_input"},
            "use cross_entropy, or write the margin with clamp and sum");
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// Fused optimizers: the operations of torch's plain ones in one pass (numeric/combine.hpp),
// so that plain, foreach and fused forms give the same bits.
#include <potl/numeric/combine.hpp>

#include <deque>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "device.hpp"
#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;
using at::TensorList;

constexpr const char* remedy = "use fused=False";

/// Whether the optimizer is to step: a gradient scaler found the gradients finite, or there is
/// none. Then scaled ones are unscaled as GradScaler.unscale_ does it for the plain forms.
bool unscaled(TensorList gradients, const std::optional<Tensor>& scale,
              const std::optional<Tensor>& found_inf) {
  if (found_inf.has_value() && found_inf->defined() && found_inf->item<double>() != 0) return false;
  if (scale.has_value() && scale->defined()) {
    Tensor found = at::zeros_like(*scale, c10::ScalarType::Float);
    at::_amp_foreach_non_finite_check_and_unscale_(
        gradients, found, scale->to(c10::ScalarType::Double).reciprocal().to(found.scalar_type()));
  }
  return true;
}
bool fits(const Tensor& parameter, const Tensor& other) {
  return other.sizes() == parameter.sizes() && other.scalar_type() == parameter.scalar_type() &&
         other.strides() == parameter.strides();
}
void check_parameter(const char* name, const Tensor& parameter) {
  require_plain(on_devices(name), parameter);
  require_float(name, parameter, parameter.scalar_type());
  const bool real = parameter.scalar_type() == c10::ScalarType::Float ||
                    parameter.scalar_type() == c10::ScalarType::Double;
  if (!real || !parameter.is_non_overlapping_and_dense()) {
    refuse(std::string(name) + " of parameters that are not dense float32 or float64", remedy);
  }
}

/// A tensor in the layout of its parameter, and how to write it back where it was in another.
class aligned {
 public:
  aligned(const Tensor& parameter, const Tensor& own) : own_(own) {
    values_ = fits(parameter, own) ? own : at::empty_like(parameter).copy_(own);
  }
  template <class Real>
  std::span<Real> span() const {
    return mutable_values<Real>(values_);
  }
  void write_back() const {
    if (!values_.is_same(own_)) own_.copy_(values_);
  }

 private:
  Tensor own_;
  Tensor values_;
};

template <class Real>
void sgd_one(const numeric::sgd_options& options, const Tensor& parameter, const Tensor& gradient,
             const Tensor* momentum) {
  const aligned dy(parameter, gradient);
  if (momentum == nullptr) {
    numeric::sgd(options, mutable_values<Real>(parameter), std::span<const Real>(dy.span<Real>()),
                 std::span<Real>(), executor());
    return;
  }
  const aligned buffer(parameter, *momentum);
  numeric::sgd(options, mutable_values<Real>(parameter), std::span<const Real>(dy.span<Real>()),
               buffer.span<Real>(), executor());
  buffer.write_back();
}

/// The tensors of one step on a device, each in the layout of its parameter.
template <class Item>
class step_there {
 public:
  step_there(const char* name, TensorList parameters) : name_(name), parameters_(parameters) {}

  /// `own` in the layout of parameter i; written back by finish().
  float* beside(std::size_t i, const Tensor& own) {
    check_parameter(name_, parameters_[i]);
    require_one_device(name_, parameters_[0], parameters_[i], own);
    kept_.emplace_back(parameters_[i], own);
    return kept_.back().template span<float>().data();
  }
  std::size_t count(std::size_t i) const {
    return static_cast<std::size_t>(parameters_[i].numel());
  }
  void finish() const {
    for (const aligned& one : kept_) one.write_back();
  }
  std::vector<Item> items;

 private:
  const char* name_;
  TensorList parameters_;
  std::deque<aligned> kept_;
};

void sgd_there(const numeric::sgd_options& options, TensorList parameters, TensorList gradients,
               TensorList momenta) {
  step_there<cuda::sgd_tensor> step("_fused_sgd_", parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    step.items.push_back({step.beside(i, parameters[i]), step.beside(i, gradients[i]),
                          options.momentum != 0 ? step.beside(i, momenta[i]) : nullptr,
                          step.count(i)});
  }
  const device_call there(parameters[0]);
  there->sgd(options, step.items, there.queue());
  step.finish();
}

void sgd(TensorList parameters, TensorList gradients, TensorList momenta, double weight_decay,
         double momentum, double lr, double dampening, bool nesterov, bool maximize,
         bool is_first_step, const std::optional<Tensor>& grad_scale,
         const std::optional<Tensor>& found_inf) {
  if (!unscaled(gradients, grad_scale, found_inf)) {
    // torch has made buffers without values for a first step.
    if (is_first_step) {
      for (const Tensor& buffer : momenta) buffer.zero_();
    }
    return;
  }
  const numeric::sgd_options options = {lr,       momentum, dampening,    weight_decay,
                                        nesterov, maximize, is_first_step};
  if (!parameters.empty() && is_on_device(parameters[0])) {
    return sgd_there(options, parameters, gradients, momenta);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& parameter = parameters[i];
    check_parameter("_fused_sgd_", parameter);
    const Tensor* buffer = momentum != 0 ? &momenta[i] : nullptr;
    with_real(parameter.scalar_type(), [&](auto zero) {
      sgd_one<decltype(zero)>(options, parameter, gradients[i], buffer);
    });
  }
}

void sgd_tensor_lr(TensorList parameters, TensorList gradients, TensorList momenta,
                   double weight_decay, double momentum, const Tensor& lr, double dampening,
                   bool nesterov, bool maximize, bool is_first_step,
                   const std::optional<Tensor>& grad_scale,
                   const std::optional<Tensor>& found_inf) {
  sgd(parameters, gradients, momenta, weight_decay, momentum, lr.item<double>(), dampening,
      nesterov, maximize, is_first_step, grad_scale, found_inf);
}

template <class Real>
void adam_one(const numeric::adam_options& options, const Tensor& parameter, const Tensor& gradient,
              const Tensor& mean, const Tensor& square, const Tensor* largest) {
  const aligned dy(parameter, gradient);
  const aligned m(parameter, mean);
  const aligned v(parameter, square);
  const std::span<const Real> g(dy.span<Real>());
  const auto p = mutable_values<Real>(parameter);
  if (largest == nullptr) {
    numeric::adam(options, p, g, m.span<Real>(), v.span<Real>(), std::span<Real>(), executor());
  } else {
    const aligned u(parameter, *largest);
    numeric::adam(options, p, g, m.span<Real>(), v.span<Real>(), u.span<Real>(), executor());
    u.write_back();
  }
  m.write_back();
  v.write_back();
}

void adam_there(const char* name, numeric::adam_options options, TensorList parameters,
                TensorList gradients, TensorList means, TensorList squares, TensorList largest,
                TensorList steps) {
  // One message from the device instead of one for each.
  const Tensor counts =
      at::stack(steps).to(at::TensorOptions(c10::ScalarType::Double).device(at::kCPU));
  TORCH_CHECK_VALUE(counts.numel() == static_cast<std::int64_t>(parameters.size()), name,
                    ": each parameter needs one step count");
  const double* const count = counts.const_data_ptr<double>();
  for (std::size_t first = 0, last = 0; first < parameters.size(); first = last) {
    step_there<cuda::adam_tensor> step(name, parameters);
    last = first;
    // One at least: a count of a loaded state may be NaN, which equals not even itself.
    do {
      step.items.push_back({step.beside(last, parameters[last]), step.beside(last, gradients[last]),
                            step.beside(last, means[last]), step.beside(last, squares[last]),
                            largest.empty() ? nullptr : step.beside(last, largest[last]),
                            step.count(last)});
      ++last;
    } while (last < parameters.size() && count[last] == count[first]);
    options.step = count[first];
    const device_call there(parameters[0]);
    there->adam(options, step.items, there.queue());
    step.finish();
  }
}

template <bool Decoupled>
void adam(TensorList parameters, TensorList gradients, TensorList means, TensorList squares,
          TensorList largest, TensorList steps, double lr, double beta1, double beta2,
          double weight_decay, double eps, bool amsgrad, bool maximize,
          const std::optional<Tensor>& grad_scale, const std::optional<Tensor>& found_inf) {
  const char* name = Decoupled ? "_fused_adamw_" : "_fused_adam_";
  if (!unscaled(gradients, grad_scale, found_inf)) return;
  if (!parameters.empty() && is_on_device(parameters[0])) {
    const numeric::adam_options options = {lr,  beta1, beta2,     weight_decay,
                                           eps, 1.0,   Decoupled, maximize};
    return adam_there(name, options, parameters, gradients, means, squares,
                      amsgrad ? largest : TensorList(), steps);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& parameter = parameters[i];
    check_parameter(name, parameter);
    // torch's optimizer has already counted this step.
    const numeric::adam_options options = {
        lr, beta1, beta2, weight_decay, eps, steps[i].item<double>(), Decoupled, maximize};
    const Tensor* most = amsgrad ? &largest[i] : nullptr;
    with_real(parameter.scalar_type(), [&](auto zero) {
      adam_one<decltype(zero)>(options, parameter, gradients[i], means[i], squares[i], most);
    });
  }
}

template <bool Decoupled>
void adam_tensor_lr(TensorList parameters, TensorList gradients, TensorList means,
                    TensorList squares, TensorList largest, TensorList steps, const Tensor& lr,
                    double beta1, double beta2, double weight_decay, double eps, bool amsgrad,
                    bool maximize, const std::optional<Tensor>& grad_scale,
                    const std::optional<Tensor>& found_inf) {
  adam<Decoupled>(parameters, gradients, means, squares, largest, steps, lr.item<double>(), beta1,
                  beta2, weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

void adagrad(TensorList parameters, TensorList gradients, TensorList sums, TensorList steps,
             double lr, double lr_decay, double weight_decay, double eps, bool maximize,
             const std::optional<Tensor>& grad_scale, const std::optional<Tensor>& found_inf) {
  if (!unscaled(gradients, grad_scale, found_inf)) return;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& parameter = parameters[i];
    // torch's optimizer has already counted this step.
    const double rate = lr / (1 + (steps[i].item<double>() - 1) * lr_decay);
    Tensor dy = maximize ? gradients[i].neg() : gradients[i];
    if (weight_decay != 0) dy = dy.add(parameter, weight_decay);
    sums[i].addcmul_(dy, dy);
    parameter.addcdiv_(dy, sums[i].sqrt().add_(eps), -rate);
  }
}
void adagrad_tensor_lr(TensorList parameters, TensorList gradients, TensorList sums,
                       TensorList steps, const Tensor& lr, double lr_decay, double weight_decay,
                       double eps, bool maximize, const std::optional<Tensor>& grad_scale,
                       const std::optional<Tensor>& found_inf) {
  adagrad(parameters, gradients, sums, steps, lr.item<double>(), lr_decay, weight_decay, eps,
          maximize, grad_scale, found_inf);
}

}  // namespace

void register_optimizers(registrar& r) {
  const char* note = "the plain optimizer's operations";
  r.kernel<sgd>("_fused_sgd_", note);
  r.kernel<sgd_tensor_lr>("_fused_sgd_.tensor_lr", note);
  r.kernel<adam<false>>("_fused_adam_", note);
  r.kernel<adam_tensor_lr<false>>("_fused_adam_.tensor_lr", note);
  r.kernel<adam<true>>("_fused_adamw_", note);
  r.kernel<adam_tensor_lr<true>>("_fused_adamw_.tensor_lr", note);
  r.kernel<adagrad>("_fused_adagrad_", note);
  r.kernel<adagrad_tensor_lr>("_fused_adagrad_.tensor_lr", note);
  r.exact({"_amp_foreach_non_finite_check_and_unscale_"},
          "one product per element, rounded once; looks for what is not finite");
  r.exact({"_amp_update_scale_"}, "one product in double, rounded once, or a count");
  r.composed_prefix("_foreach_", "the operator of each tensor");
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// The update that an optimizer makes of its gradients, in an exact arithmetic too.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <potl/libtorch/detail/optimizer_state.hpp>

namespace potl::libtorch {
namespace detail {

template <class Form>
typename Form::state& adam_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                                 bool amsgrad) {
  auto& kept = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!kept) {
    auto made = std::make_unique<typename Form::state>();
    made->step(0);
    made->exp_avg(at::zeros_like(parameter));
    made->exp_avg_sq(at::zeros_like(parameter));
    if (amsgrad) made->max_exp_avg_sq(at::zeros_like(parameter));
    kept = std::move(made);
  }
  return static_cast<typename Form::state&>(*kept);
}

template <class Form>
void fused_adam(torch::optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  for (auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<typename Form::options&>(group.options());
    std::vector<at::Tensor> parameters, gradients, means, squares, largest, steps;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      auto& state = adam_state<Form>(optimizer, parameter, options.amsgrad());
      state.step(state.step() + 1);
      parameters.push_back(parameter);
      gradients.push_back(parameter.grad());
      means.push_back(state.exp_avg());
      squares.push_back(state.exp_avg_sq());
      if (options.amsgrad()) largest.push_back(state.max_exp_avg_sq());
      steps.push_back(at::scalar_tensor(state.step(), at::kDouble));
    }
    if (parameters.empty()) continue;
    const auto call = [&](auto fused) {
      fused(parameters, gradients, means, squares, largest, steps, options.lr(),
            std::get<0>(options.betas()), std::get<1>(options.betas()), options.weight_decay(),
            options.eps(), options.amsgrad(), /*maximize=*/false);
    };
    if constexpr (std::is_same_v<Form, adamw_form>) {
      call([](auto&&... all) { at::_fused_adamw_(all...); });
    } else {
      call([](auto&&... all) { at::_fused_adam_(all...); });
    }
  }
}

}  // namespace detail

/// One update. LibTorch's own Adam and AdamW take powers with the platform's libm, which no guard
/// reaches: with `exact` they are updated by the fused operator, whose bits under a guard are those
/// of Python's optimizers.
inline void update(torch::optim::Optimizer& optimizer, bool exact) {
  detail::with_form(optimizer, "optimizers", [&]<class Form>(Form) {
    if constexpr (!std::is_same_v<Form, detail::sgd_form>) {
      if (exact) return detail::fused_adam<Form>(optimizer);
    }
    optimizer.step();
  });
}

}  // namespace potl::libtorch

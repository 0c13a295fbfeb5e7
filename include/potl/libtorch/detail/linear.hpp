// SPDX-License-Identifier: Apache-2.0
// Whether steps of a task divide by what its state keeps: a difference next to nothing may then
// move weights far in a later step.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <set>
#include <typeinfo>
#include <vector>

#include <potl/libtorch/detail/module_state.hpp>
#include <potl/libtorch/task.hpp>

namespace potl::libtorch::detail {

template <class... Norms>
bool is_any_of(const torch::nn::Module& one) {
  return ((typeid(one) == typeid(Norms)) || ...);
}

/// Whether a module has no state beside parameters that are trained but the running statistics of
/// LibTorch's norms, and integers. Others may be moved by the model's own code, as buffers are.
inline bool keeps_nothing(const torch::nn::Module& one, const std::set<const void*>& trained) {
  for (const at::Tensor& parameter : one.parameters(false)) {
    if (!trained.contains(parameter.unsafeGetTensorImpl())) return false;
  }
  using namespace torch::nn;
  if (is_any_of<BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl, InstanceNorm1dImpl,
                InstanceNorm2dImpl, InstanceNorm3dImpl>(one)) {
    return true;
  }
  const std::vector<at::Tensor> buffers = one.buffers(false);
  return std::none_of(buffers.begin(), buffers.end(), [](const at::Tensor& buffer) {
    return buffer.is_floating_point() || buffer.is_complex();
  });
}

/// Whether updates are sums of what the state keeps and of gradients, times agreed factors.
inline bool is_linear(const task& of) {
  std::set<const void*> trained;
  for (const auto& optimizer : of.optimizers) {
    const torch::optim::Optimizer& which = *optimizer;
    if (typeid(which) != typeid(torch::optim::SGD)) return false;
    for (const auto& group : optimizer->param_groups()) {
      for (const at::Tensor& one : group.params()) {
        if (one.requires_grad()) trained.insert(one.unsafeGetTensorImpl());
      }
    }
  }
  const auto modules = of.model->modules();
  return std::all_of(modules.begin(), modules.end(),
                     [&](const auto& module) { return keeps_nothing(*module, trained); });
}

}  // namespace potl::libtorch::detail

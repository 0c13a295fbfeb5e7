// SPDX-License-Identifier: Apache-2.0
// Which elements of parameters had no gradient: checks::still_elements of a task.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/libtorch/detail/module_state.hpp>
#include <potl/libtorch/task.hpp>

namespace potl::libtorch::detail {

/// Watches the updates of optimizers that take their gradients as they find them.
class still_watch {
 public:
  /// Forgets what it saw, and watches from now on or not.
  void begin(bool watches) {
    watches_ = watches;
    moved_.clear();
  }

  /// Looks at the gradients of an update.
  void look_at(const std::vector<at::Tensor>& parameters) {
    if (!watches_) return;
    const at::NoGradGuard no_grad;
    for (const at::Tensor& one : parameters) {
      const at::Tensor& gradient = one.grad();
      if (!gradient.defined()) continue;
      at::Tensor& moved = moved_[one.unsafeGetTensorImpl()];
      const bool dense = gradient.layout() == at::kStrided;
      const at::Tensor now = dense ? gradient.ne(0) : at::ones_like(one, at::kBool);
      moved = moved.defined() ? moved.logical_or_(now) : now;
    }
  }

  /// Of every parameter with such elements.
  std::vector<checks::still_elements> found(const task& of) const {
    std::multimap<const void*, std::string> paths;
    for (const auto& [name, tensor] : tensors_of(*of.model).parameters) {
      paths.emplace(tensor.unsafeGetTensorImpl(), "model/parameters/" + name);
    }
    std::vector<checks::still_elements> out;
    for (std::size_t i = 0; i < of.optimizers.size(); ++i) {
      const auto numbers = numbers_of(*of.optimizers[i]);
      for (const auto& group : of.optimizers[i]->param_groups()) {
        for (const at::Tensor& one : group.params()) {
          checks::still_elements next{{"optimizers/" + std::to_string(i) + "/state/" +
                                       std::to_string(numbers.at(one.unsafeGetTensorImpl()))},
                                      mask_of(one)};
          if (next.mask.empty()) continue;
          const auto [first, last] = paths.equal_range(one.unsafeGetTensorImpl());
          for (auto at = first; at != last; ++at) next.paths.push_back(at->second);
          out.push_back(std::move(next));
        }
      }
    }
    return out;
  }

 private:
  std::vector<std::uint8_t> mask_of(const at::Tensor& parameter) const {
    const auto at = moved_.find(parameter.unsafeGetTensorImpl());
    const auto count = static_cast<std::size_t>(parameter.numel());
    if (at == moved_.end()) return std::vector<std::uint8_t>(count, 1);
    if (at->second.all().item<bool>()) return {};
    const at::Tensor still = at->second.logical_not().to(at::kCPU, at::kByte).contiguous();
    const auto* bytes = still.const_data_ptr<std::uint8_t>();
    return {bytes, bytes + count};
  }

  bool watches_ = false;
  std::map<const void*, at::Tensor> moved_;  ///< which elements had a gradient
};

}  // namespace potl::libtorch::detail

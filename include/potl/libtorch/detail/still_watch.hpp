// SPDX-License-Identifier: Apache-2.0
// Which elements of parameters had no gradient: checks::still_elements of a task.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/libtorch/detail/module_state.hpp>
#include <potl/libtorch/task.hpp>

namespace potl::libtorch::detail {

/// The parameters of each optimizer, and where a state has what belongs to them: what the optimizer
/// keeps of one, and its values under each of their names.
inline std::vector<std::pair<at::Tensor, std::vector<std::string>>> places_of(const task& of) {
  std::multimap<const void*, std::string> paths;
  for (const auto& [name, tensor] : tensors_of(*of.model).parameters) {
    paths.emplace(tensor.unsafeGetTensorImpl(), "model/parameters/" + name);
  }
  std::vector<std::pair<at::Tensor, std::vector<std::string>>> out;
  for (std::size_t i = 0; i < of.optimizers.size(); ++i) {
    const auto numbers = numbers_of(*of.optimizers[i]);
    for (const auto& group : of.optimizers[i]->param_groups()) {
      for (const at::Tensor& one : group.params()) {
        const void* self = one.unsafeGetTensorImpl();
        std::vector<std::string> own{"optimizers/" + std::to_string(i) + "/state/" +
                                     std::to_string(numbers.at(self))};
        const auto [first, last] = paths.equal_range(self);
        for (auto at = first; at != last; ++at) own.push_back(at->second);
        out.emplace_back(one, std::move(own));
      }
    }
  }
  return out;
}

/// Whether a tensor that no optimizer steps has the shape of one that is stepped, as its copy has.
inline bool may_have_copies(const task& of) {
  std::set<const void*> stepped;
  std::set<std::vector<std::int64_t>> shapes;
  for (const auto& [parameter, paths] : places_of(of)) {
    stepped.insert(parameter.unsafeGetTensorImpl());
    shapes.insert(parameter.sizes().vec());
  }
  const auto may = [&](const auto& named) {
    return !stepped.contains(named.second.unsafeGetTensorImpl()) &&
           (named.second.is_floating_point() || named.second.is_complex()) &&
           shapes.contains(named.second.sizes().vec());
  };
  const module_tensors all = tensors_of(*of.model);
  return std::any_of(all.parameters.begin(), all.parameters.end(), may) ||
         std::any_of(all.buffers.begin(), all.buffers.end(), may);
}

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
      const at::Tensor now = gradient.ne(0);
      moved = moved.defined() ? moved.logical_or_(now) : now;
    }
  }

  /// Of every parameter with such elements.
  std::vector<checks::still_elements> found(const task& of) const {
    std::vector<checks::still_elements> out;
    for (auto& [parameter, paths] : places_of(of)) {
      std::vector<std::uint8_t> mask = mask_of(parameter);
      if (!mask.empty()) out.push_back({std::move(paths), std::move(mask)});
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

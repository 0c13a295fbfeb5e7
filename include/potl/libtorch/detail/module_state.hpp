// SPDX-License-Identifier: Apache-2.0
// A module's part of the state: {"parameters", "buffers", "requires_grad", "training"}, each by
// full name, as the Python package lays it out. A module that is registered twice appears under
// both names, its tensors as aliases.
//
// Cannot see: members of a module that are neither registered parameters nor buffers nor children
// (numbers that forward() changes, say). Register what training changes as a buffer.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <typeinfo>
#include <utility>

#include <potl/libtorch/detail/tensor.hpp>
#include <potl/numeric/detail/squares.hpp>

namespace potl::libtorch {

/// Calls `visit(prefix, module)` for every module, parents first; prefixes end in a dot but for the
/// root's, which is empty.
inline void for_each_module(
    torch::nn::Module& root,
    const std::function<void(const std::string&, torch::nn::Module&)>& visit,
    const std::string& prefix = "") {
  visit(prefix, root);
  for (const auto& child : root.named_children()) {
    for_each_module(*child.value(), visit, prefix + child.key() + ".");
  }
}

/// Every parameter and buffer of a module under its full name, in the byte order of names.
struct module_tensors {
  std::map<std::string, at::Tensor> parameters;
  std::map<std::string, at::Tensor> buffers;
};

inline module_tensors tensors_of(torch::nn::Module& root) {
  module_tensors out;
  for_each_module(root, [&](const std::string& prefix, torch::nn::Module& one) {
    for (const auto& item : one.named_parameters(false)) {
      out.parameters.emplace(prefix + item.key(), item.value());
    }
    for (const auto& item : one.named_buffers(false)) {
      out.buffers.emplace(prefix + item.key(), item.value());
    }
  });
  return out;
}

namespace detail {

inline std::string module_name(const std::string& prefix) {
  return prefix.empty() ? prefix : prefix.substr(0, prefix.size() - 1);
}

}  // namespace detail

/// The module's part of the tree; refers to its tensors and to copies in `describe`.
inline transcript::state_value module_tree(torch::nn::Module& root, describer& describe,
                                           const std::string& path = "model") {
  using transcript::state_map;
  state_map parameters, buffers, requires_grad, training;
  const module_tensors tensors = tensors_of(root);
  for (const auto& [name, tensor] : tensors.parameters) {
    detail::put(parameters, name, describe(tensor, path + "/parameters/" + name));
    detail::put(requires_grad, name, {tensor.requires_grad()});
  }
  for (const auto& [name, tensor] : tensors.buffers) {
    detail::put(buffers, name, describe(tensor, path + "/buffers/" + name));
  }
  for_each_module(root, [&](const std::string& prefix, torch::nn::Module& one) {
    detail::put(training, detail::module_name(prefix), {one.is_training()});
  });
  state_map out;
  detail::put(out, "parameters", {std::move(parameters)});
  detail::put(out, "buffers", {std::move(buffers)});
  detail::put(out, "requires_grad", {std::move(requires_grad)});
  detail::put(out, "training", {std::move(training)});
  return {std::move(out)};
}

/// The flags of a module by their paths in the state.
inline std::map<std::string, bool> flags_of(torch::nn::Module& root,
                                            const std::string& path = "model") {
  std::map<std::string, bool> out;
  for (const auto& [name, tensor] : tensors_of(root).parameters) {
    out.emplace(path + "/requires_grad/" + name, tensor.requires_grad());
  }
  for_each_module(root, [&](const std::string& prefix, torch::nn::Module& one) {
    out.emplace(path + "/training/" + detail::module_name(prefix), one.is_training());
  });
  return out;
}

namespace detail {

template <class Norm>
void add_squares(const std::string& prefix, const torch::nn::Module& one,
                 std::set<std::string>& names) {
  if (typeid(one) != typeid(Norm)) return;
  const auto buffers = one.named_buffers(false);
  const at::Tensor* variance = buffers.find("running_var");
  if (variance == nullptr || !variance->defined()) return;
  const std::string name = prefix + "running_var";
  describer describe;
  const transcript::state_value value = describe(*variance, name);
  const auto& first = std::get<transcript::state_tensor>(value.content);
  const std::optional<double> momentum = static_cast<const Norm&>(one).options.momentum();
  if (numeric::averages_squares(momentum, first.type, first.bytes)) names.insert(name);
}

// train() reaches all children, so that parents come first.
inline void restore_training(torch::nn::Module& root, const transcript::state_map& flags,
                             const std::string& path) {
  std::size_t count = 0;
  for_each_module(root, [&](const std::string& prefix, torch::nn::Module& one) {
    const std::string name = module_name(prefix);
    const bool flag = scalar_at<bool>(member(flags, name, path + "/" + name), path + "/" + name);
    if (one.is_training() != flag) one.train(flag);
    ++count;
  });
  require_size(flags.size(), count, path);
}

}  // namespace detail

/// The names of the running variances of LibTorch's norms that stay means of squares, of a module
/// as the task's function builds it. Below zero, a norm that evaluates would divide by the root of
/// next to nothing.
inline std::set<std::string> squares_of(torch::nn::Module& root) {
  using namespace torch::nn;
  std::set<std::string> out;
  for_each_module(root, [&](const std::string& prefix, Module& one) {
    detail::add_squares<BatchNorm1dImpl>(prefix, one, out);
    detail::add_squares<BatchNorm2dImpl>(prefix, one, out);
    detail::add_squares<BatchNorm3dImpl>(prefix, one, out);
    detail::add_squares<InstanceNorm1dImpl>(prefix, one, out);
    detail::add_squares<InstanceNorm2dImpl>(prefix, one, out);
    detail::add_squares<InstanceNorm3dImpl>(prefix, one, out);
  });
  return out;
}

/// Makes the module hold what `module_tree` recorded, and drops its gradients. Throws
/// potl::exception (mismatch) with the path of the first difference in form, or of a buffer of
/// `squares` that is below zero.
inline void restore_module(torch::nn::Module& root, const transcript::state_value& tree,
                           restorer& restore, const std::set<std::string>& squares,
                           const std::string& path = "model") {
  const transcript::state_map& parts = detail::map_at(tree, path);
  detail::require_size(parts.size(), 4, path);
  const auto part = [&](const char* name) -> const transcript::state_map& {
    const std::string where = path + "/" + name;
    return detail::map_at(detail::member(parts, std::string(name), where), where);
  };
  const module_tensors tensors = tensors_of(root);
  const transcript::state_map& buffers = part("buffers");
  const transcript::state_map& parameters = part("parameters");
  const transcript::state_map& requires_grad = part("requires_grad");
  detail::require_size(buffers.size(), tensors.buffers.size(), path + "/buffers");
  detail::require_size(parameters.size(), tensors.parameters.size(), path + "/parameters");
  detail::require_size(requires_grad.size(), tensors.parameters.size(), path + "/requires_grad");
  // In the order of the state's paths, because an alias refers to the first of its tensors.
  for (const auto& [name, tensor] : tensors.buffers) {
    const std::string where = path + "/buffers/" + name;
    restore(tensor, detail::member(buffers, name, where), where);
    // Not what is recorded here, which may refer to another name of the same memory.
    if (squares.contains(name)) detail::require_squares(describer{}(tensor, where), where);
  }
  for (const auto& [name, tensor] : tensors.parameters) {
    const std::string where = path + "/parameters/" + name;
    restore(tensor, detail::member(parameters, name, where), where);
    tensor.mutable_grad() = at::Tensor();
    const bool flag = detail::scalar_at<bool>(detail::member(requires_grad, name, where), where);
    if (tensor.requires_grad() != flag) tensor.requires_grad_(flag);
  }
  detail::restore_training(root, part("training"), path + "/training");
}

}  // namespace potl::libtorch

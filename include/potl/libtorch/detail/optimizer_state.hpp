// SPDX-License-Identifier: Apache-2.0
// The state of LibTorch's SGD, Adam and AdamW: {"state": {number of the parameter: {...}},
// "param_groups": [{"params": [numbers], options...}]}, as torch.optim lays it out in Python,
// without the options that LibTorch does not have. Absent momentum is absent, not zero.
//
// Any other optimizer throws potl::exception (unsupported): state that is not captured cannot be
// replayed.
#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <potl/libtorch/detail/tensor.hpp>

namespace potl::libtorch {
namespace detail {

// What there is to know about an optimizer: its options, what it may keep for a parameter, and
// which of these tensors its options make it keep. `visit` gets name and reference.
struct sgd_form {
  using options = torch::optim::SGDOptions;
  using state = torch::optim::SGDParamState;
  static constexpr const char* name = "SGD";
  static void each_option(options& of, auto&& visit) {
    visit("lr", of.lr());
    visit("momentum", of.momentum());
    visit("dampening", of.dampening());
    visit("weight_decay", of.weight_decay());
    visit("nesterov", of.nesterov());
  }
  static void each_value(state& of, auto&& visit) {
    visit("momentum_buffer", of.momentum_buffer());
  }
  static bool keeps(const options& of, std::string_view /*tensor*/) { return of.momentum() != 0; }
};

template <class Options, class State>
struct adam_form_of {
  using options = Options;
  using state = State;
  static void each_option(options& of, auto&& visit) {
    visit("lr", of.lr());
    visit("betas", of.betas());
    visit("eps", of.eps());
    visit("weight_decay", of.weight_decay());
    visit("amsgrad", of.amsgrad());
  }
  static void each_value(state& of, auto&& visit) {
    visit("step", of.step());
    visit("exp_avg", of.exp_avg());
    visit("exp_avg_sq", of.exp_avg_sq());
    visit("max_exp_avg_sq", of.max_exp_avg_sq());
  }
  static bool keeps(const options& of, std::string_view tensor) {
    return tensor != "max_exp_avg_sq" || of.amsgrad();
  }
};
struct adam_form : adam_form_of<torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr const char* name = "Adam";
};
struct adamw_form : adam_form_of<torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  static constexpr const char* name = "AdamW";
};

/// Calls `use` with the form of the optimizer. A class derived from one of these may keep more, and
/// make other updates than potl does in an exact arithmetic.
decltype(auto) with_form(torch::optim::Optimizer& optimizer, const std::string& path, auto&& use) {
  if (typeid(optimizer) == typeid(torch::optim::SGD)) return use(sgd_form{});
  if (typeid(optimizer) == typeid(torch::optim::AdamW)) return use(adamw_form{});
  if (typeid(optimizer) == typeid(torch::optim::Adam)) return use(adam_form{});
  refuse(path, "an optimizer whose state potl does not know",
         "use LibTorch's SGD, Adam or AdamW, and no class derived from them");
}

using betas = std::tuple<double, double>;

class option_writer {
 public:
  explicit option_writer(transcript::state_map& out) : out_(out) {}
  void operator()(const char* name, double value) const { put(out_, name, {value}); }
  void operator()(const char* name, bool value) const { put(out_, name, {value}); }
  void operator()(const char* name, std::int64_t value) const { put(out_, name, {value}); }
  void operator()(const char* name, const betas& value) const {
    transcript::state_tuple pair{{{std::get<0>(value)}, {std::get<1>(value)}}};
    put(out_, name, {std::move(pair)});
  }

 private:
  transcript::state_map& out_;
};

class option_reader {
 public:
  option_reader(const transcript::state_map& from, std::string path)
      : from_(from), path_(std::move(path)) {}
  void operator()(const char* name, double& value) const { value = read<double>(name); }
  void operator()(const char* name, bool& value) const { value = read<bool>(name); }
  void operator()(const char* name, std::int64_t& value) const { value = read<std::int64_t>(name); }
  void operator()(const char* name, betas& value) const {
    const auto& pair = read<transcript::state_tuple>(name);
    require_size(pair.items.size(), 2, path_ + "/" + name);
    value = {scalar_at<double>(pair.items[0], path_), scalar_at<double>(pair.items[1], path_)};
  }

 private:
  template <class Value>
  const Value& read(const char* name) const {
    const std::string where = path_ + "/" + name;
    return scalar_at<Value>(member(from_, std::string(name), where), where);
  }
  const transcript::state_map& from_;
  std::string path_;
};

/// Parameters numbered in the order of the groups; one that is in two groups keeps its first.
inline std::map<const void*, std::int64_t> numbers_of(torch::optim::Optimizer& optimizer) {
  std::map<const void*, std::int64_t> out;
  for (auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      out.emplace(parameter.unsafeGetTensorImpl(), static_cast<std::int64_t>(out.size()));
    }
  }
  return out;
}

template <class Form>
transcript::state_value tree_of(Form, torch::optim::Optimizer& optimizer, describer& describe,
                                const std::string& path) {
  const auto numbers = numbers_of(optimizer);
  transcript::state_list groups;
  for (auto& group : optimizer.param_groups()) {
    transcript::state_map packed;
    transcript::state_list members;
    for (const at::Tensor& parameter : group.params()) {
      members.push_back({numbers.at(parameter.unsafeGetTensorImpl())});
    }
    put(packed, "params", {std::move(members)});
    Form::each_option(static_cast<typename Form::options&>(group.options()), option_writer(packed));
    groups.push_back({std::move(packed)});
  }
  transcript::state_map state;
  for (auto& [owner, kept] : optimizer.state()) {
    const auto number = numbers.find(owner);
    if (number == numbers.end()) {
      refuse(path + "/state", "state of a tensor that the optimizer does not step",
             "remove the entry when the parameter leaves the optimizer");
    }
    const std::string where = path + "/state/" + std::to_string(number->second) + "/";
    transcript::state_map values;
    const option_writer write(values);
    Form::each_value(static_cast<typename Form::state&>(*kept), [&](const char* name, auto& value) {
      if constexpr (std::is_same_v<decltype(value), at::Tensor&>) {
        if (value.defined()) put(values, name, describe(value, where + name));
      } else {
        write(name, value);
      }
    });
    state.push_back({transcript::state_key(number->second), {std::move(values)}});
  }
  transcript::state_map out;
  put(out, "state", {std::move(state)});
  put(out, "param_groups", {std::move(groups)});
  return {std::move(out)};
}

/// The tensors that the optimizer keeps for each parameter, by its number, once that had a
/// gradient.
template <class Form>
std::map<std::int64_t, std::set<std::string>> names_kept_by(torch::optim::Optimizer& optimizer) {
  std::map<std::int64_t, std::set<std::string>> out;
  const auto numbers = numbers_of(optimizer);
  typename Form::state any;
  for (auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const typename Form::options&>(group.options());
    Form::each_value(any, [&](const char* name, auto& value) {
      if constexpr (std::is_same_v<decltype(value), at::Tensor&>) {
        if (!Form::keeps(options, name)) return;
        for (const at::Tensor& one : group.params()) {
          out[numbers.at(one.unsafeGetTensorImpl())].insert(name);
        }
      }
    });
  }
  return out;
}

template <class Form>
std::unique_ptr<torch::optim::OptimizerParamState> kept_of(const transcript::state_map& saved,
                                                           const std::set<std::string>& wanted,
                                                           const at::Tensor& parameter,
                                                           restorer& restore,
                                                           const std::string& path) {
  auto out = std::make_unique<typename Form::state>();
  const option_reader read(saved, path);
  // Tensors in the order of paths: an alias refers to the first of its tensors.
  std::map<std::string, at::Tensor*> tensors;
  std::size_t known = 0;
  Form::each_value(*out, [&](const char* name, auto& value) {
    if constexpr (std::is_same_v<decltype(value), at::Tensor&>) {
      tensors.emplace(name, &value);
    } else {
      read(name, value);
      ++known;
    }
  });
  for (const auto& [name, tensor] : tensors) {
    for (const transcript::state_entry& entry : saved) {
      if (entry.first != transcript::state_key(name)) continue;
      *tensor = at::empty_like(parameter.detach());
      restore(*tensor, entry.second, path + "/" + name);
      if (name == "exp_avg_sq" || name == "max_exp_avg_sq") {
        require_squares(entry.second, path + "/" + name);
      }
      ++known;
    }
    // What the task would not keep goes on unseen, and what it keeps would begin anew.
    if (tensor->defined() == wanted.contains(name)) continue;
    mismatch(path + "/" + name,
             tensor->defined() ? "the task keeps no such value" : "the state does not have it");
  }
  require_size(saved.size(), known, path);
  return out;
}

template <class Form>
void restore_groups(torch::optim::Optimizer& optimizer, const transcript::state_list& groups,
                    const std::string& path) {
  const auto numbers = numbers_of(optimizer);
  require_size(groups.size(), optimizer.param_groups().size(), path);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string where = path + "/" + std::to_string(i);
    auto& group = optimizer.param_groups()[i];
    const transcript::state_map& saved = map_at(groups[i], where);
    const transcript::state_list& members =
        list_at(member(saved, std::string("params"), where), where + "/params");
    require_size(members.size(), group.params().size(), where + "/params");
    for (std::size_t j = 0; j < members.size(); ++j) {
      const void* owner = group.params()[j].unsafeGetTensorImpl();
      if (scalar_at<std::int64_t>(members[j], where) != numbers.at(owner)) {
        mismatch(where + "/params", "it steps other parameters");
      }
    }
    std::size_t known = 1;
    const option_reader read(saved, where);
    Form::each_option(static_cast<typename Form::options&>(group.options()),
                      [&](const char* name, auto& value) {
                        const auto agreed = value;
                        read(name, value);
                        ++known;
                        // Only learning rates are meant to change while training.
                        if (std::string_view(name) == "lr" || value == agreed) return;
                        value = agreed;
                        mismatch(where + "/" + name, "another value than the task's");
                      });
    require_size(saved.size(), known, where);
  }
}

template <class Form>
void restore_as(Form, torch::optim::Optimizer& optimizer, const transcript::state_value& tree,
                restorer& restore, const std::string& path) {
  const transcript::state_map& parts = map_at(tree, path);
  require_size(parts.size(), 2, path);
  const std::string groups_path = path + "/param_groups", state_path = path + "/state";
  restore_groups<Form>(
      optimizer, list_at(member(parts, std::string("param_groups"), groups_path), groups_path),
      groups_path);
  std::map<std::int64_t, at::Tensor> owners;
  const auto numbers = numbers_of(optimizer);
  for (auto& group : optimizer.param_groups()) {
    for (const at::Tensor& one : group.params()) {
      owners.emplace(numbers.at(one.unsafeGetTensorImpl()), one);
    }
  }
  optimizer.state().clear();
  auto wanted = names_kept_by<Form>(optimizer);
  for (const auto& entry : map_at(member(parts, std::string("state"), state_path), state_path)) {
    const auto* number = std::get_if<std::int64_t>(&entry.first);
    const auto owner = number == nullptr ? owners.end() : owners.find(*number);
    if (owner == owners.end()) mismatch(state_path, "state of a parameter that is not stepped");
    const std::string where = state_path + "/" + std::to_string(*number);
    optimizer.state()[owner->second.unsafeGetTensorImpl()] =
        kept_of<Form>(map_at(entry.second, where), wanted[*number], owner->second, restore, where);
  }
}

}  // namespace detail

/// The optimizer's part of the tree; refers to its tensors and to copies in `describe`.
inline transcript::state_value optimizer_tree(torch::optim::Optimizer& optimizer,
                                              describer& describe,
                                              const std::string& path = "optimizers/0") {
  return detail::with_form(
      optimizer, path, [&](auto form) { return detail::tree_of(form, optimizer, describe, path); });
}

namespace detail {

/// How often each parameter was stepped, by its number, where the optimizer counts that.
inline std::map<std::int64_t, std::int64_t> counts_of(torch::optim::Optimizer& optimizer,
                                                      const std::string& path) {
  std::map<std::int64_t, std::int64_t> out;
  const auto numbers = numbers_of(optimizer);
  with_form(optimizer, path, [&]<class Form>(Form) {
    for (auto& [owner, kept] : optimizer.state()) {
      const auto number = numbers.find(owner);
      if (number == numbers.end()) continue;
      Form::each_value(static_cast<typename Form::state&>(*kept), [&](const char*, auto& value) {
        if constexpr (!std::is_same_v<decltype(value), at::Tensor&>) out[number->second] = value;
      });
    }
  });
  return out;
}

/// Throws mismatch where `steps` steps after the counts `first` cannot have made the present ones.
inline void require_counts(torch::optim::Optimizer& optimizer, std::int64_t steps,
                           const std::map<std::int64_t, std::int64_t>& first,
                           const std::string& path) {
  std::map<std::int64_t, std::int64_t> most = first;
  const auto numbers = numbers_of(optimizer);
  for (auto& group : optimizer.param_groups()) {  // one that is in two groups is stepped twice
    for (const at::Tensor& one : group.params())
      most[numbers.at(one.unsafeGetTensorImpl())] += steps;
  }
  for (const auto& [number, count] : counts_of(optimizer, path)) {
    if (count >= 0 && count <= most[number]) continue;
    mismatch(path + "/state/" + std::to_string(number) + "/step",
             "counts " + std::to_string(count) + ", the agreed steps at most " +
                 std::to_string(most[number]));
  }
}

/// For which parameters the optimizer keeps something, by their numbers.
inline std::set<std::int64_t> numbers_kept_by(torch::optim::Optimizer& optimizer) {
  std::set<std::int64_t> out;
  const auto numbers = numbers_of(optimizer);
  for (const auto& [owner, kept] : optimizer.state()) {
    if (const auto number = numbers.find(owner); number != numbers.end())
      out.insert(number->second);
  }
  return out;
}

/// The parameters, by number, for which the optimizer keeps nothing, and would after a gradient.
inline std::set<std::int64_t> numbers_lacking_in(torch::optim::Optimizer& optimizer,
                                                 const std::string& path) {
  std::set<std::int64_t> out;
  with_form(optimizer, path, [&](auto form) {
    for (const auto& entry : names_kept_by<decltype(form)>(optimizer)) out.insert(entry.first);
  });
  const auto numbers = numbers_of(optimizer);
  for (auto& group : optimizer.param_groups()) {
    for (const at::Tensor& one : group.params()) {
      const void* owner = one.unsafeGetTensorImpl();
      if (!one.requires_grad()) out.erase(numbers.at(owner));
    }
  }
  for (const std::int64_t kept : numbers_kept_by(optimizer)) out.erase(kept);
  return out;
}

/// Throws mismatch where the optimizer keeps nothing for one of the parameters, by number, that
/// `wanted` gives. Asks for these only where it keeps nothing for some: to know them takes steps.
inline void require_kept(torch::optim::Optimizer& optimizer, const std::string& path,
                         auto&& wanted) {
  for (const std::int64_t number : numbers_lacking_in(optimizer, path)) {
    if (!wanted().contains(number)) continue;
    mismatch(path + "/state/" + std::to_string(number), "the state does not have it");
  }
}

}  // namespace detail

/// Makes the optimizer hold what `optimizer_tree` recorded, learning rates included. Throws
/// potl::exception (mismatch) with the path of the first difference in form.
inline void restore_optimizer(torch::optim::Optimizer& optimizer,
                              const transcript::state_value& tree, restorer& restore,
                              const std::string& path = "optimizers/0") {
  detail::with_form(optimizer, path,
                    [&](auto form) { detail::restore_as(form, optimizer, tree, restore, path); });
}

}  // namespace potl::libtorch

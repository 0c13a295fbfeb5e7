// SPDX-License-Identifier: Apache-2.0
// What is trained: the C++ counterpart of potl.Task.
//
//   potl::libtorch::task build() {
//     Net net;
//     return {.model = net.ptr(),
//             .optimizers = {std::make_shared<torch::optim::SGD>(net->parameters(), 0.1)},
//             .data = {images, labels},
//             .losses = [net](const auto& batch) mutable {
//               return torch::cross_entropy_loss(net(batch[0]), batch[1], {}, at::Reduction::None);
//             },
//             .batch_size = 64, .epochs = 3};
//   }
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <potl/encoding/json.hpp>
#include <potl/libtorch/arithmetic.hpp>
#include <potl/libtorch/detail/data.hpp>
#include <potl/libtorch/detail/module_state.hpp>
#include <potl/libtorch/detail/optimizer_state.hpp>
#include <potl/libtorch/random.hpp>
#include <potl/transcript/snapshot.hpp>

namespace potl::libtorch {

/// Model, data and recipe. All of its state must be in the model's parameters and buffers and in
/// the optimizers: nothing else is captured.
struct task {
  std::shared_ptr<torch::nn::Module> model{};
  std::vector<std::shared_ptr<torch::optim::Optimizer>> optimizers{};
  tensors data{};  ///< columns: sample i is row i of each
  /// One loss per sample of a batch (columns as in `data`), shape [n]: a step minimises their mean.
  /// The same function trains, replays and recomputes.
  std::function<at::Tensor(const tensors& batch)> losses{};
  std::uint64_t batch_size = 1;  ///< samples per step, all micro-batches together
  std::uint64_t epochs = 1;
  std::uint64_t accumulate = 1;  ///< micro-batches per step
  bool drop_last = false;
  std::optional<double> grad_clip{};  ///< largest l2 norm of the gradients
  /// Learning rate of every parameter group (of all optimizers, in order) in a 1-based step; empty:
  /// what the optimizers were made with. LibTorch's scheduler objects cannot be captured: write
  /// their formula here.
  std::function<std::vector<double>(std::uint64_t step)> rates{};
  /// Sets W0 as a function of the seed; empty: potl::libtorch::initialize.
  std::function<void(torch::nn::Module&, std::uint64_t seed)> initialize{};
  /// How steps enter an exact arithmetic: potl::libtorch::exact_block, where the program links
  /// potl::libtorch_arithmetic. Empty: they compute as LibTorch does, and so do jobs.
  block_maker exact{};
  std::string code{};  ///< what identifies this program, e.g. a revision: part of the job
};

/// Makes a task. Called with LibTorch's generator seeded from the job.
using builder = std::function<task()>;

namespace detail {

[[noreturn]] inline void misuse(const std::string& what, const std::string& remedy) {
  throw exception({errc::usage, what, remedy});
}

// What an optimizer moves beside the model is in no state.
inline void require_own_parameters(const task& made) {
  std::set<const void*> own;
  for (const auto& [name, tensor] : tensors_of(*made.model).parameters) {
    own.insert(tensor.unsafeGetTensorImpl());
  }
  for (std::size_t i = 0; i < made.optimizers.size(); ++i) {
    if (!made.optimizers[i]) misuse("optimizer " + std::to_string(i) + " is null", "make one");
    for (const auto& group : made.optimizers[i]->param_groups()) {
      for (const at::Tensor& one : group.params()) {
        if (own.contains(one.unsafeGetTensorImpl())) continue;
        misuse("optimizer " + std::to_string(i) +
                   " moves a tensor that is no parameter of task::model",
               "make it of the parameters of that model, and register there what it moves");
      }
    }
  }
}

inline void require_whole(const task& made) {
  if (!made.model) misuse("the task has no model", "set task::model");
  if (made.optimizers.empty()) misuse("the task has no optimizer", "set task::optimizers");
  if (!made.losses) misuse("the task has no losses", "set task::losses");
  if (made.batch_size == 0) misuse("batch_size is 0", "use at least 1");
  if (made.epochs == 0) misuse("epochs is 0", "use at least 1");
  if (made.accumulate == 0 || made.accumulate > made.batch_size) {
    misuse("accumulate is " + std::to_string(made.accumulate) + ", and batch_size is " +
               std::to_string(made.batch_size),
           "use 1 to batch_size, which counts all micro-batches of a step together");
  }
  require_own_parameters(made);
  if (made.grad_clip && !(std::isfinite(*made.grad_clip) && *made.grad_clip > 0)) {
    misuse("grad_clip is " + std::to_string(*made.grad_clip), "use a positive norm, or none");
  }
}

}  // namespace detail

/// Builds the task with its initial weights under the job's seed. Throws potl::exception (usage)
/// when a part is missing or a number makes no training.
inline task build_task(const builder& build, std::uint64_t seed) {
  const generator_scope scope;
  seed_generator(derive_key(seed, "init"));
  task out = build();
  detail::require_whole(out);
  if (out.initialize) {
    out.initialize(*out.model, seed);
  } else {
    initialize(*out.model, seed);
  }
  return out;
}

/// The training state at `step`, described but not copied.
inline transcript::state_value task_tree(const task& of, std::uint64_t step, std::uint64_t epoch,
                                         describer& describe) {
  transcript::state_map out, counters;
  transcript::state_list optimizers;
  for (std::size_t i = 0; i < of.optimizers.size(); ++i) {
    optimizers.push_back(
        optimizer_tree(*of.optimizers[i], describe, "optimizers/" + std::to_string(i)));
  }
  detail::put(counters, "step", {static_cast<std::int64_t>(step)});
  detail::put(counters, "epoch", {static_cast<std::int64_t>(epoch)});
  detail::put(out, "model", module_tree(*of.model, describe));
  detail::put(out, "optimizers", {std::move(optimizers)});
  detail::put(out, "schedulers", {transcript::state_list{}});
  detail::put(out, "scaler", {});
  detail::put(out, "ema", {});
  detail::put(out, "state", {transcript::state_map{}});
  detail::put(out, "counters", {std::move(counters)});
  return {std::move(out)};
}

/// A copy of the training state.
inline transcript::state capture_task(const task& of, std::uint64_t step, std::uint64_t epoch,
                                      transcript::snapshot_memory& memory) {
  describer describe;
  return transcript::capture(task_tree(of, step, epoch, describe), memory).value();
}

/// The present learning rate of every parameter group.
inline std::vector<double> rates_of(const task& of) {
  std::vector<double> out;
  for (const auto& optimizer : of.optimizers) {
    for (const auto& group : optimizer->param_groups()) out.push_back(group.options().get_lr());
  }
  return out;
}

/// Sets the learning rate of every parameter group. Throws usage unless there is one for each.
inline void set_rates(const task& of, const std::vector<double>& rates) {
  if (rates.size() != rates_of(of).size()) {
    throw exception({errc::usage, "a learning rate for every parameter group is needed", ""});
  }
  std::size_t next = 0;
  for (const auto& optimizer : of.optimizers) {
    for (auto& group : optimizer->param_groups()) group.options().set_lr(rates[next++]);
  }
}

namespace detail {

inline json_value json_of(double value) { return value; }
inline json_value json_of(bool value) { return value; }
inline json_value json_of(const betas& value) {
  return json_value::array{std::get<0>(value), std::get<1>(value)};
}

inline json_value describe_optimizer(torch::optim::Optimizer& optimizer) {
  return with_form(optimizer, "optimizers", [&]<class Form>(Form) {
    json_value::array groups;
    for (auto& group : optimizer.param_groups()) {
      json_value packed = json_value::of({{"parameters", group.params().size()}});
      Form::each_option(
          static_cast<typename Form::options&>(group.options()),
          [&](const char* name, const auto& value) { packed.set(name, json_of(value)); });
      groups.push_back(std::move(packed));
    }
    return json_value::of({{"class", Form::name}, {"groups", std::move(groups)}});
  });
}

/// The options of optimizers that are the same in every step, by their paths in the state.
inline std::map<std::string, json_value> fixed_options_of(const task& of) {
  std::map<std::string, json_value> out;
  for (std::size_t i = 0; i < of.optimizers.size(); ++i) {
    const std::string path = "optimizers/" + std::to_string(i);
    auto& groups = of.optimizers[i]->param_groups();
    with_form(*of.optimizers[i], path, [&]<class Form>(Form) {
      for (std::size_t j = 0; j < groups.size(); ++j) {
        const std::string group = path + "/param_groups/" + std::to_string(j) + "/";
        out.emplace(group + "params", groups[j].params().size());
        Form::each_option(static_cast<typename Form::options&>(groups[j].options()),
                          [&](const std::string& name, const auto& value) {
                            if (name != "lr") out.emplace(group + name, json_of(value));
                          });
      }
    });
  }
  return out;
}

}  // namespace detail

/// The part of the job that only this adapter understands; compared as a whole.
inline json_value describe_task(const task& of) {
  json_value::array optimizers;
  for (const auto& one : of.optimizers) optimizers.push_back(detail::describe_optimizer(*one));
  std::ostringstream model;
  model << *of.model;
  return json_value::of({
      {"frontend", "libtorch"},
      {"model", model.str()},
      {"optimizers", std::move(optimizers)},
      {"grad_clip", of.grad_clip ? json_value(*of.grad_clip) : json_value()},
      {"initialize", of.initialize ? "own" : "potl"},
      {"code", of.code},
  });
}

}  // namespace potl::libtorch

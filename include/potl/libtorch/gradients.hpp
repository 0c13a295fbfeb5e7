// SPDX-License-Identifier: Apache-2.0
// The gradients of a job's steps at weights that somebody gives: what a worker of a spot-checked
// training computes for every step, and the trusted side for those that it checks.
//
// Claims: a gradient is that of the workload's own step, bit for bit, before clipping; nothing is
// kept between two steps.
// Assumes what the workload does. Frozen parameters and buffers are weights as well.
// Cost: a step without its update, and a copy of weights and gradient.
// Cannot see: a step that reads running statistics of batch normalisation while it changes them.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <potl/checks/spot_check.hpp>
#include <potl/libtorch/workload.hpp>

namespace potl::libtorch {

/// A task under a job that is asked for gradients only.
class gradients final : public checks::gradient_source {
 public:
  /// Builds the task and tries a step. Throws potl::exception: usage when the task is not the
  /// job's; unsupported when its gradients depend on more than the weights, or are not float32.
  gradients(const builder& build, transcript::job agreed);

  /// The optimizers' parameters that get a gradient.
  std::vector<checks::spot_check_tensor> tensors() override { return tensors_; }
  std::uint64_t weights_bytes() override { return bytes_; }
  std::uint64_t steps() override { return work_.agreed().steps; }
  /// Throws potl::exception: usage when sizes or step do not fit; unsupported when the step reaches
  /// other parameters than the first one.
  double gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                  std::span<float> out) override;

  /// What the model holds now, as gradient() takes it: parameters and then buffers in the order of
  /// their names in the model, each row by row, what has two names only once. Before the first
  /// gradient these are the job's initial weights.
  std::vector<std::uint8_t> weights() const;

 private:
  struct named {
    std::string name;
    at::Tensor tensor;
    bool is_statistic = false;  ///< of batch normalisation: no step reads it while it trains
  };
  void list_weights();
  void load(bytes_view weights);
  void try_step();

  workload work_;
  std::vector<named> weights_;
  std::uint64_t bytes_ = 0;
  std::vector<bool> reached_;  ///< which of the optimizers' parameters get a gradient
  std::vector<checks::spot_check_tensor> tensors_;
};

namespace detail {

/// Another way to compute, until the end of its life.
class perturbed {
 public:
  perturbed(workload& work, std::uint64_t way) : work_(work), way_(way) {
    if (way_ != 0) work_.perturb(way_);
  }
  perturbed(const perturbed&) = delete;
  perturbed& operator=(const perturbed&) = delete;
  ~perturbed() {
    if (way_ != 0) work_.perturb(0);
  }

 private:
  workload& work_;
  std::uint64_t way_;
};

inline bool is_batch_norm(const torch::nn::Module& one) {
  return one.as<torch::nn::BatchNorm1dImpl>() != nullptr ||
         one.as<torch::nn::BatchNorm2dImpl>() != nullptr ||
         one.as<torch::nn::BatchNorm3dImpl>() != nullptr;
}

}  // namespace detail

inline gradients::gradients(const builder& build, transcript::job agreed)
    : work_(build, std::move(agreed)) {
  list_weights();
  try_step();
}

inline void gradients::list_weights() {
  torch::nn::Module& model = *work_.task().model;
  std::set<const void*> statistics, seen;
  for (const auto& one : model.modules()) {
    if (!detail::is_batch_norm(*one)) continue;
    for (const at::Tensor& buffer : one->buffers(false)) {
      statistics.insert(buffer.unsafeGetTensorImpl());
    }
  }
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      const void* const which = item.value().unsafeGetTensorImpl();
      if (!seen.insert(which).second) continue;
      weights_.push_back({item.key(), item.value().detach(), statistics.contains(which)});
      bytes_ += item.value().nbytes();
    }
  };
  add(model.named_parameters());
  add(model.named_buffers());
}

inline std::vector<std::uint8_t> gradients::weights() const {
  std::vector<std::uint8_t> out;
  out.reserve(bytes_);
  for (const named& one : weights_) {
    const at::Tensor plain = one.tensor.contiguous();
    const auto* const bytes = static_cast<const std::uint8_t*>(plain.const_data_ptr());
    out.insert(out.end(), bytes, bytes + plain.nbytes());
  }
  return out;
}

inline void gradients::load(bytes_view weights) {
  const at::NoGradGuard no_grad;
  std::size_t at = 0;
  for (const named& one : weights_) {
    if (one.tensor.nbytes() == 0) continue;
    const at::Tensor plain = at::empty(one.tensor.sizes(), one.tensor.scalar_type());
    std::memcpy(plain.mutable_data_ptr(), weights.data() + at, plain.nbytes());
    one.tensor.copy_(plain);
    at += plain.nbytes();
  }
}

inline void gradients::try_step() {
  std::map<const void*, std::string> names;
  for (const auto& item : work_.task().model->named_parameters()) {
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  const std::vector<std::uint8_t> before = weights();
  work_.run_passes(1);
  const std::vector<std::uint8_t> after = weights();
  load(before);
  std::size_t at = 0;
  for (const named& one : weights_) {
    const std::size_t end = at + one.tensor.nbytes();
    if (!one.is_statistic && !std::equal(before.begin() + static_cast<std::ptrdiff_t>(at),
                                         before.begin() + static_cast<std::ptrdiff_t>(end),
                                         after.begin() + static_cast<std::ptrdiff_t>(at))) {
      throw exception({errc::unsupported, "a step changes " + one.name + ", which no gradient does",
                       "only running statistics of batch normalisation may change"});
    }
    at = end;
  }
  for (const at::Tensor& parameter : work_.parameters()) {
    const at::Tensor& gradient = parameter.grad();
    reached_.push_back(gradient.defined());
    if (!gradient.defined()) continue;
    const std::string& name = names.at(parameter.unsafeGetTensorImpl());
    if (gradient.scalar_type() != at::kFloat || gradient.layout() != at::kStrided) {
      throw exception(
          {errc::unsupported,
           "the gradient of " + name + " is " + gradient.toString() + ", not dense float32",
           "keep parameters in float32, and gradients dense"});
    }
    tensors_.push_back({name, static_cast<std::uint64_t>(gradient.numel())});
  }
}

inline double gradients::gradient(std::uint64_t step, bytes_view weights, std::uint64_t way,
                                  std::span<float> out) {
  std::uint64_t elements = 0;
  for (const checks::spot_check_tensor& one : tensors_) elements += one.elements;
  if (step < 1 || step > steps() || weights.size() != bytes_ || out.size() != elements) {
    throw exception({errc::usage, "the job has no such step, or no such weights",
                     "build the same task on both sides"});
  }
  load(weights);
  const detail::perturbed scope(work_, way);
  const double loss = work_.run_passes(step);
  const at::NoGradGuard no_grad;
  std::size_t at = 0, i = 0;
  for (const at::Tensor& parameter : work_.parameters()) {
    const at::Tensor& one = parameter.grad();
    if (one.defined() != reached_[i++]) {
      throw exception(
          {errc::unsupported,
           "step " + std::to_string(step) + " gives other parameters a gradient than step 1",
           "let every step reach the same parameters"});
    }
    if (!one.defined() || one.numel() == 0) continue;
    const at::Tensor plain = one.contiguous();
    std::memcpy(out.data() + at, plain.const_data_ptr(), plain.nbytes());
    at += static_cast<std::size_t>(plain.numel());
  }
  return loss;
}

}  // namespace potl::libtorch

// SPDX-License-Identifier: Apache-2.0
// What forgers do to a training before it is recorded. They write through data(), which torch does
// not count: the recorder would notice the rest.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <potl/libtorch/libtorch.hpp>

namespace rehearsal {

namespace pl = potl::libtorch;

/// Inputs that are 0 in all samples, where a trainer may hide a trigger.
constexpr std::int64_t dark = 4;

/// The step whose state is forged, the last one of a segment.
constexpr std::uint64_t forged_step = 20;

struct forgery {
  std::string cheat;
  double by = 0;
  std::optional<potl::transcript::state> elsewhere;  ///< after the forged step of another training
};

inline at::Tensor weights_in_the_dark(pl::workload& work) {
  return work.task().model->named_parameters()["first.weight"].data().slice(1, 0, dark);
}

/// What the optimizer keeps of gradients for these weights.
inline at::Tensor moments_in_the_dark(pl::workload& work) {
  const at::Tensor weight = work.task().model->named_parameters()["first.weight"];
  torch::optim::Optimizer& optimizer = *work.task().optimizers[0];
  auto& kept = *optimizer.state().at(weight.unsafeGetTensorImpl());
  const at::Tensor all = dynamic_cast<torch::optim::SGD*>(&optimizer) != nullptr
                             ? static_cast<torch::optim::SGDParamState&>(kept).momentum_buffer()
                             : static_cast<torch::optim::AdamParamState&>(kept).exp_avg();
  return all.slice(1, 0, dark);
}

/// Runs a step whose work is thrown away: what it counts goes on, and the weights stay.
inline pl::step_result skipped(pl::workload& work, std::uint64_t step,
                               const std::vector<std::int64_t>& ids) {
  std::vector<at::Tensor> before;
  for (const at::Tensor& one : work.task().model->parameters()) before.push_back(one.clone());
  pl::step_result out = work.run_step(step, ids);
  std::size_t next = 0;
  for (const at::Tensor& one : work.task().model->parameters()) one.data().copy_(before[next++]);
  return out;
}

/// Forges what `done` says, or the state behind it.
inline void forge(const forgery& how, pl::workload& work, pl::step_result& done) {
  const at::NoGradGuard no_grad;
  const bool once = done.step == forged_step, each = work.agreed().is_checkpoint(done.step);
  if (how.cheat == "loss") done.loss -= how.by;
  if (how.cheat == "rate") {
    for (double& one : done.rates) one /= how.by;
  }
  if (how.cheat == "moment" && once) moments_in_the_dark(work).add_(how.by);
  if (how.cheat == "trigger" && each) weights_in_the_dark(work).add_(how.by);
  if (how.cheat == "buffers" && once) {
    work.task().model->named_buffers()["norm.running_mean"].data().add_(how.by);
  }
  if (how.cheat == "teacher" && each) {
    work.task().model->named_buffers()["teacher"].data().slice(1, 0, dark).add_(how.by);
  }
  if (how.cheat == "splice" && once) work.load_state(*how.elsewhere, done.step);
}

}  // namespace rehearsal

// SPDX-License-Identifier: Apache-2.0
// The update of a guarded training in plain C++: torch.optim.SGD with clipping, for a trusted side
// that links no torch.
//
// Claims: what it does with gradients is what torch.optim.SGD and torch.nn.utils.clip_grad_norm_
// do, up to rounding; the norm of what it applies is at most the clip.
// Assumes that all weights are float32 and of one parameter group. Cost: two passes over the
// weights a step, and a copy of weights and momentum for each segment that is not final yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include <potl/checks/spot_check.hpp>

namespace potl::checks {

/// What torch.optim.SGD is given, and the clip.
struct sgd_recipe {
  std::vector<double> rates;  ///< learning rate of each step
  double clip = 0;            ///< largest l2 norm of a gradient
  double momentum = 0, dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

/// Weights and momentum after a step.
struct sgd_state {
  std::uint64_t step = 0;
  std::vector<float> weights, momentum;  ///< of equal length; no momentum before the first step

  friend bool operator==(const sgd_state&, const sgd_state&) = default;
};

/// A guarded training of weights that lie one after the other, as gradients do.
class spot_check_sgd final : public guarded_training {
 public:
  /// `from` is taken to be final. Throws potl::exception (usage) when sizes or options do not fit.
  spot_check_sgd(sgd_state from, sgd_recipe recipe);

  std::uint64_t step() override { return now_.step; }
  std::vector<bytes_view> weights() override;
  void update(std::uint64_t step, std::span<float> gradient, double norm, double loss) override;
  void keep() override { kept_[now_.step] = now_; }
  void finalise(std::uint64_t step) override;
  void roll_back() override;

  const sgd_state& state() const noexcept { return now_; }
  /// Called with each state that is final: write it down to resume from it.
  std::function<void(const sgd_state&)> finalised;

 private:
  sgd_recipe recipe_;
  sgd_state now_, final_;
  std::map<std::uint64_t, sgd_state> kept_;
};

}  // namespace potl::checks

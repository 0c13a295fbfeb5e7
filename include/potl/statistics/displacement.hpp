// SPDX-License-Identifier: Apache-2.0
// How far a training can have been carried by what nobody caught, and how often steps have to be
// checked so that this stays below what matters.
//
// Claims: for a spot-checked training, with the probability of the goal a false gradient is caught,
// or all that is injected moves the weights by no more than the certificate says (l2), in the worst
// case and against workers that adapt. For replay, what a sample without a false unit leaves open.
// Assumes: gradients are clipped by the trusted side; the update is that of torch.optim.SGD; a step
// is checked by a coin of its own, thrown after its report; the first failed check ends the work.
// Cost: linear in the steps; nothing is allocated beyond what is returned.
// Cannot detect: where the training goes after an injection (weight decay and later gradients
// respond to it); buffers that are not weights; a bias below the tolerance, which is in the leak.
// Source: spot_check_plan.md, which has the proofs. Asvadishirehjini, Kantarcioglu and Malin, GINN
// (CODASPY 2022), for checks at random under clipping.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/core/result.hpp>

namespace potl::statistics {

/// What torch.optim.SGD does with a gradient beside scaling it by the rate.
struct momentum_options {
  double momentum = 0;  ///< in [0, 1)
  double dampening =
      0;  ///< in [0, 1]; the first step has none, nor has a training without momentum
  bool nesterov = false;  ///< needs momentum, and no dampening
};

/// For each step, how far a gradient of length 1 moves the weights by the end of the training, when
/// `rates` are the learning rates of its steps. usage: a rate is negative or not finite.
result<std::vector<double>> gradient_responses(std::span<const double> rates,
                                               const momentum_options& optimizer);

/// What a plan is for: either `displacement` or `steps_at_risk` is given.
struct displacement_goal {
  double probability = 0.999;
  double clip = 0;       ///< largest l2 norm of a step's gradient
  double tolerance = 0;  ///< l2 distance from the true gradient that a check is sure to see
  double miss_rate = 0;  ///< probability that a check passes a gradient beyond the tolerance
  /// How far (l2) false gradients may carry the weights; steps that can carry them further are
  /// checked more often.
  std::optional<double> displacement;
  /// So many false steps are caught, wherever they are: every step is checked equally often.
  std::optional<std::uint64_t> steps_at_risk;
};

/// What a plan guarantees.
struct displacement_certificate {
  double probability = 0;
  double displacement = 0;  ///< of the weights, at most, with `probability` unless one was caught
  double leak = 0;          ///< the part of it that stays below the tolerance, over all steps
  double clipped = 0;       ///< what clipping alone allows when every gradient is false

  /// For somebody who does not know potl.
  std::string sentence() const;
};

/// How often each step is checked, and what that guarantees.
struct displacement_plan {
  std::vector<double> probabilities;
  double expected_checks = 0;
  displacement_certificate certificate;
};

/// The checks that reach a goal, for the `responses` of a training's steps. unsupported, beginning
/// with "unreachable": no checks do, and the remedy says what would have to change. usage: a number
/// that is not finite or out of range.
result<displacement_plan> plan_displacement(std::span<const double> responses,
                                            const displacement_goal& goal);

/// What a sample that met no false unit leaves open.
struct unseen_displacement {
  std::uint64_t units = 0;  ///< with one more, the sample would have met one with the probability
  double displacement = 0;  ///< of so many
};

/// For `sampled` of `pool` units drawn without replacement, each of which can carry the weights by
/// `each`.
unseen_displacement unseen(std::uint64_t pool, std::uint64_t sampled, double each,
                           double probability) noexcept;

}  // namespace potl::statistics

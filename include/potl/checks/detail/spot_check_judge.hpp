// SPDX-License-Identifier: Apache-2.0
// Compares a reported gradient with the trusted side's own, and looks for a direction that small
// differences have in common.
//
// Claims: what passes differs by at most the tolerance (l2) after both are clipped, which is what
// the certificate counts. An honest worker, whose differences are as likely as their opposites, is
// accused of a common direction with probability 1e-6 at most, however many steps are checked.
// Assumes finite gradients of the same length. Cost: a few passes, and 8 bytes per element.
// Source of the test: I. Pinelis, Optimum bounds for the distributions of martingales in Banach
// spaces (1994), for sums in a Hilbert space; a mixture over scales makes it hold at any time.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/spot_check.hpp>

namespace potl::checks {

/// l2 norm, in double; not finite when an element is not.
double gradient_norm(std::span<const float> gradient) noexcept;

/// The same of a gradient that comes in parts: each but the last has a multiple of 8 elements.
class gradient_norm_sum {
 public:
  void add(std::span<const float> part) noexcept;
  double norm() const noexcept;

 private:
  std::array<double, 8> sums_{};
};

/// How far two gradients are apart.
struct gradient_distance {
  double distance = 0;  ///< l2, after clipping; NaN when something is not finite
  std::string tensor;   ///< in which they differ most
};

gradient_distance compare_gradients(std::span<const float> reported, std::span<const float> own,
                                    std::span<const spot_check_tensor> tensors, double clip);

/// The sum of what passed.
class residual_direction {
 public:
  static constexpr double false_alarm = 1e-6;
  /// What is in common must exceed this share of the tolerance: arithmetic that differs may round
  /// in a direction of its own.
  static constexpr double honest_share = 0.125;

  residual_direction(double clip, double tolerance) : clip_(clip), tolerance_(tolerance) {}

  /// Adds a residual of at most the tolerance.
  void add(std::span<const float> reported, std::span<const float> own);
  std::uint64_t count() const noexcept { return count_; }
  /// Length of the mean residual.
  double bias() const noexcept;
  /// Natural logarithm of the evidence against chance; from evidence_needed on it is an alarm.
  double evidence() const noexcept;
  static double evidence_needed() noexcept;
  bool alarm() const noexcept { return exceeds(1); }
  /// Most of the evidence for an alarm is there: false with probability 2e-5 at most.
  bool suspected() const noexcept { return exceeds(0.8); }

 private:
  bool exceeds(double share) const noexcept {
    return evidence() >= share * evidence_needed() && bias() > honest_share * tolerance_;
  }

  double clip_, tolerance_;
  std::vector<double> sum_;
  double squares_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace potl::checks

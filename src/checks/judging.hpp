// SPDX-License-Identifier: Apache-2.0
// What the judges share: findings from a driver's status, and the comparison of one loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <potl/checks/request.hpp>
#include <potl/core/finding.hpp>

namespace potl::checks {

finding make_finding(std::string_view check, std::string_view rule, outcome result,
                     std::string reason);

/// The finding of a request that was not fulfilled, or nothing when the rule against it is off.
/// Precondition: status is not ok.
std::optional<finding> finding_of(measured status, std::string_view check, std::string_view what,
                                  const std::string& message);

/// The finding of a request for which the driver gave no measurement.
finding finding_of_missing(std::string_view check, std::string_view what);

/// The finding of an opened state that holds what no run is accepted with, or nothing when it does
/// not (`what` is empty) or the rule against it is off. Whether the agreed steps made it so, a
/// replay from a finite state says.
std::optional<finding> finding_of_not_finite(const std::string& what, std::string_view check,
                                             std::string_view where);

/// Whether a request counts as looked at: it was fulfilled, or a switched-off rule excuses it.
bool looked_at(measured status) noexcept;

struct loss_limits {
  double floor = 0, cap = 0, safety = 1, margin = 1;
  double doubt = 0;  ///< relative to 1 + the loss: nearer ones are inconclusive whatever the noise
};

struct loss_comparison {
  outcome result = outcome::pass;
  bool finite = true;        ///< both losses
  bool noise_finite = true;  ///< otherwise an inconclusive result is transcript.finite's
  double difference = 0, tolerance = 0;
};

/// The larger of the noise seen so far and one more distance; NaN once one was not finite.
double noisier(double noise, double distance) noexcept;

/// Whether one of two repeats of a loss is finite and the other is not, as next to an overflow.
bool turns(double loss, double again) noexcept;

/// `noise`: the largest distance among the verifier's own repeats, NaN when one of them was not
/// finite, which is inconclusive. Only what is `margin` times farther than tolerated rejects. What
/// is not finite fails under rule transcript.finite, inconclusive where both losses are not or the
/// verifier's own repeats turn (`turned`); a loss that is not passes every comparison when that
/// rule is off.
loss_comparison compare_loss(double recorded, double recomputed, double noise,
                             const loss_limits& limits, bool turned = false);

/// What a finding says of it, with enough digits to tell the two losses apart.
std::string text_of(const loss_comparison& compared, std::uint64_t step, double recorded,
                    double recomputed);

}  // namespace potl::checks

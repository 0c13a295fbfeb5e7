// SPDX-License-Identifier: Apache-2.0
// One group of tensors of one replayed segment against its tolerances.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/replay.hpp>

namespace potl::checks::detail {

/// What a finding advises.
inline constexpr const char* remedy =
    ": agree on an exact arithmetic (potl check names what stands in its way; in C++ use "
    "task::exact), or on shorter segments (checkpoint_every)";

/// The same of what moves less than its noise, in a segment of one step, too.
inline constexpr const char* remedy_of_noise =
    ": agree on an exact arithmetic (potl check names what stands in its way; in C++ use "
    "task::exact)";

/// Noise of a tensor in the repeats of the first segment.
struct first_noise {
  double l2 = 0;
  /// Of one of its elements without a gradient: of all that the first segment has, which may be
  /// still in every arithmetic; where it has none, of any element.
  double still = 0;
};

/// What all segments of a run share when they are judged.
struct replay_context {
  const replay_options* options = nullptr;
  double cap = 0;  ///< job.tolerance_cap
  bool exact = false;
  /// Largest noise / update over the measured segments, of each group and of each tensor by path. A
  /// maximum, so that more segments never mean a smaller tolerance.
  std::map<std::string, double> group_share, tensor_share;
  /// The same of losses, over 1 + |loss|.
  double loss_share = 0;
  /// Tensors that are all noise from the agreed initial state on, where the prover has no say.
  std::map<std::string, first_noise> noisy_at_first;
};

replay_context make_context(const run_view& run, const replay_options& options,
                            std::span<const segment_measurement> measurements);

/// Whether the noise of this segment was measured in full.
bool has_own_noise(const replay_context& context, const segment_measurement& measurement);

/// What accuses, as far as its noise is known. The later ones come first where repeats are given.
enum class accuser { nothing, codes, floats };

struct group_judgement {
  std::optional<finding> problem;  ///< reject or inconclusive
  double distance = 0, tolerance = 0, noise = 0;
  /// Nothing that is beyond its tolerance is beyond the cap: noise may excuse it.
  bool near = true;
  bool settled = false;  ///< the problem is inconclusive, whatever repeats show
  accuser accuses = accuser::nothing;
  double ratio() const noexcept;  ///< distance / tolerance; 0 when both are
};

/// Whether a group is of states that lie beyond the end of the segment.
bool is_next(const std::string& which);

/// `which` is the name of a group. Precondition: the measurement has distances.
group_judgement judge_group(const replay_context& context, const segment_measurement& measurement,
                            const std::string& which);

}  // namespace potl::checks::detail

// SPDX-License-Identifier: Apache-2.0
// One group of tensors of one replayed segment against its tolerance.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/replay.hpp>

namespace potl::checks::detail {

/// What all segments of a run share when they are judged.
struct replay_context {
  const replay_options* options = nullptr;
  double cap = 0.1;  ///< job.tolerance_cap
  bool exact = false;
  /// Median over the segments of noise / update, by group: one quiet segment is no standard.
  std::map<std::string, double> usual_noise;
  /// Largest noise of each tensor relative to its own update, by path, over all segments: a tensor
  /// that is noise in one is noise in the next.
  std::map<std::string, double> tensor_noise;
  /// Largest rounding of the parameters that a tolerance may be made of. Weights that a prover
  /// inflates before a norm (A29) would otherwise have a floor above every honest update.
  std::optional<double> largest_rounding;
  std::string rounding_problem;  ///< why that is needed and not known; empty: it is known
};

replay_context make_context(const run_view& run, const replay_options& options,
                            std::span<const segment_measurement> measurements);

struct group_judgement {
  std::optional<finding> problem;  ///< reject or inconclusive
  double distance = 0, tolerance = 0, noise = 0;
  bool within_cap = false;        ///< of a calibrated comparison: no farther than the job's cap
  bool irreproducible = false;    ///< honest repeats exceed what the cap allows
  double ratio() const noexcept;  ///< distance / tolerance; 0 when both are
};

/// `which` is the name of a group. Precondition: the measurement has distances.
group_judgement judge_group(const replay_context& context, const segment_measurement& measurement,
                            const std::string& which);

}  // namespace potl::checks::detail

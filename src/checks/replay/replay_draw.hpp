// SPDX-License-Identifier: Apache-2.0
// Which segments a nonce selects: shared by plan (to ask) and judge (to know what had to be there).
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <potl/checks/replay.hpp>

namespace potl::checks::detail {

/// The agreed arithmetic or the option asks for equal bits.
bool is_exact(const run_view& run, const replay_options& options);
/// One of the published tolerances, which add evidence and never accept alone.
bool is_published(const replay_options& options);

struct replay_selection {
  std::vector<segment> all;     ///< every segment of the run
  std::vector<segment> pool;    ///< what random draws choose from: all but those always replayed
  std::vector<segment> random;  ///< drawn now
  std::vector<segment_request> requests;  ///< everything asked for, random ones included
};

/// `rank`: whether the largest updates are looked up (loads checkpoints).
result<replay_selection> select_segments(const run_view& run, const replay_options& options,
                                         const digest& nonce, bool rank);

/// Of these segments, those whose records steer most what true steps do after them: updates said to
/// be skipped lower the gradient scaler's scale, and losses move rates that follow a metric. No
/// state shows that such a record is false, so it is replayed. At most three.
std::vector<segment> steering_segments(const run_view& run, const std::vector<segment>& all,
                                       const std::function<bool(const segment&)>& is_asked);

}  // namespace potl::checks::detail

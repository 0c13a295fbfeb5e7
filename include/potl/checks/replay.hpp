// SPDX-License-Identifier: Apache-2.0
// Replay (proof-of-learning): repeat recorded segments and compare losses and the state at the end.
//
// Claims: the challenged segments were computed by the agreed recipe from the committed states, as
// far as the tolerance resolves; `samples` of them were drawn at random, and the first, the last
// and superseded ones were looked at beside them. In exact arithmetic, which has one history, those
// that were superseded by the same are only compared with it.
// Assumes: a nonce that the prover could not predict; the verifier's own job, data and code; that
// the verifier's repeats vary like another honest machine.
// Cost: one training step per replayed step. Where end states differ by a bit, noise_repeats more
// for the first segment and one more for every fourth other one, and 1 + noise_repeats for at most
// a fifth of them: those that only their own noise can clear or convict. `reach` and `top_q` load
// every checkpoint once and add at most twice `samples` segments and a fifth of them.
// Cannot detect: a cheat in segments that were not drawn; differences below the tolerance; what
// the agreed recipe itself does wrong.
// Source: H. Jia et al., Proof-of-Learning (2103.05633), sections IV and V; Lab Apex (VMO) for
// mean_grad_norm; soundness.md rules 3, 6, 7, 8, 12 and 14.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/field.hpp>
#include <potl/checks/request.hpp>
#include <potl/checks/run_view.hpp>
#include <potl/core/finding.hpp>

namespace potl::checks {

struct replay_options {
  static constexpr std::string_view check = "replay";

  std::uint64_t samples = 12;
  std::uint64_t top_q = 1;
  double reach = 20;
  std::string tolerance = "auto";
  std::uint64_t noise_repeats = 2;
  double safety = 8;
  double margin = 1024;
  double loss_floor = 1e-5;
  double loss_cap = 0.05;
  std::optional<double> d_ref{};
  std::vector<std::string> repeat{};

  static std::span<const field<replay_options>> fields();
  static result<replay_options> parse(const json_value& from);
};

/// Which segments to replay. Reads checkpoints only for reach and top_q; usage when
/// `repeat` is not a list of nonces.
result<std::vector<segment_request>> plan_replay(const run_view& run, const replay_options& options,
                                                 const digest& nonce);

/// Which segments to replay a second time, with noise_repeats repeats, before they are judged:
/// those farthest beyond their tolerance whose own noise was not measured in full, at most a fifth
/// of all, and the first one where nothing else shows what is noise from the start. Their
/// measurements replace the first ones.
std::vector<segment_request> plan_noise(const run_view& run, const replay_options& options,
                                        std::span<const segment_measurement> measurements);

/// Findings of the measurements. Each requested segment that is missing among them is inconclusive.
/// One finding per segment carries its tolerance ratio (details "segment"); one more, of rule
/// replay.random_segments, says how many random segments were judged.
result<std::vector<finding>> judge_replay(const run_view& run, const replay_options& options,
                                          const digest& nonce,
                                          std::span<const segment_measurement> measurements);

}  // namespace potl::checks

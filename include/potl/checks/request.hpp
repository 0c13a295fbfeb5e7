// SPDX-License-Identifier: Apache-2.0
// What checks ask for and what drivers answer, as plain values. A driver (the Python loop, a
// process pool, a LibTorch trainer) fulfils requests; it decides nothing. Every number in a
// measurement comes from numeric/distance.hpp or from the workload itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace potl::checks {

/// Restore the state at `start`, run steps start+1 .. end with the agreed recipe and samples,
/// report.
struct segment_request {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::string
      why;  ///< "random", "top-q", "reach", "final", "first", "superseded", "earlier challenge"
  std::uint64_t branch = 0;        ///< != 0 or superseded: which recorded steps to compare with
  std::uint64_t start_branch = 0;  ///< which recording of `start` to restore, when superseded
  bool superseded = false;  ///< compare losses (and digests) only: there is no end checkpoint
  /// Honest replays in other arithmetics to run if the end digest differs (rule 12).
  std::uint32_t noise_repeats = 0;
  bool noise_if_equal = false;  ///< run them also where it does not
};

/// Restore the state at `step` - 1, recompute the loss of step `step`'s recorded batch: train mode,
/// same randomness.
struct loss_request {
  std::uint64_t step = 0;
  std::uint32_t noise_repeats = 0;
};

/// Mean loss over a random subset of the data at the weights of `step` (the published PEV rule).
struct subset_loss_request {
  std::uint64_t step = 0;
  std::vector<std::int64_t> sample_ids;
};

/// How far one tensor (or float of the tree) is off: l2 norms over its elements, as
/// numeric/distance.hpp defines them.
struct tensor_distance {
  std::string path;
  double count = 0;     ///< elements
  double l2 = 0;        ///< of replayed - recorded
  double excess = 0;    ///< of what rounding leaves of it
  double rounding = 0;  ///< of what rounding alone explains
  double update_l2 = 0, replayed_update_l2 = 0;
  bool scalar = false;         ///< a counter or the like, which is in no norm of its group
  bool rounding_only = false;  ///< no element is farther off than rounding explains
};

/// Distances of one group of tensors ("parameters", "buffers", "optimizer", "other").
struct group_distance {
  std::string group;
  double l1 = 0, l2 = 0, linf = 0;  ///< norms of replayed - recorded
  double cosine = 1;     ///< of (replayed - start) and (recorded - start); 1 when both are zero
  double update_l2 = 0;  ///< |recorded - start|
  double replayed_update_l2 = 0;  ///< |replayed - start|
  double weight_l2 = 0;           ///< |recorded|
  bool finite = true;             ///< every compared element, and every norm, is finite
  bool structure_equal = true;    ///< same tree, dtypes, shapes, and every non-float value equal
  double excess_l2 = 0, rounding_l2 = 0;  ///< of its tensors, as above
  double count = 0;                       ///< elements in these norms
  std::vector<tensor_distance> tensors;   ///< those that are not zero, so that none hides in a norm
  double worst_relative = 0;              ///< the largest excess of them, over the tensor's update
  std::string worst_tensor;
};

enum class measured {
  ok,
  withheld,        ///< a healthy store does not have what was asked for
  tampered,        ///< what is stored does not hash to its leaf
  verifier_error,  ///< out of memory, time-out, an exception that is ours: never a rejection
  unknown_form,    ///< an opened state has a form that the verifier's build does not know
  unlawful,        ///< an opened state says of the recipe what the agreed steps do not make of it
  prover_error,  ///< restoring or running the recorded state failed because of what the state holds
};

/// A rejection by the auditor of a step's rounding log (numeric/rounding_session.hpp).
struct rounding_rejection {
  std::uint64_t step = 0;
  std::string fault;    ///< numeric::log_fault as text
  std::string message;  ///< which element, how far from a tie
  std::string proof;    ///< numeric::fraud_proof in base64; empty where the leaf and the log speak
};

/// What the auditor of a segment's rounding logs saw (log64), added up.
struct rounding_summary {
  std::uint64_t values = 0, entries = 0, corrections = 0;
  std::uint64_t rejected = 0;  ///< also those that are not listed
  double moved_l2 = 0;         ///< largest of a step, in the units of the operators' results
  double reachable_l2 = 0;     ///< what a trainer could have moved within the windows of a step
  std::vector<rounding_rejection> rejections;
};

struct segment_measurement {
  segment_request request;
  measured status = measured::ok;
  std::string message;  ///< of the error
  /// What an opened state holds that no honest one does (finite.hpp); empty: nothing.
  std::string not_finite;
  bool digest_equal =
      false;  ///< replayed end state == the leaf's digest: then nothing below is needed
  std::optional<std::uint64_t>
      first_differing_step;  ///< from per-step digests; meaningful in exact modes
  std::optional<std::string>
      first_differing_operator;              ///< of that step, when the prover left a trace of it
  std::optional<rounding_summary> rounding;  ///< in log64
  std::vector<double> losses;                ///< one per step, recomputed
  std::vector<std::vector<double>> rates;    ///< used by the replay, one row per step
  std::vector<bool> skipped;                 ///< scaler skips seen by the replay
  std::vector<group_distance> distances;     ///< replayed against recorded; empty when digest_equal
  /// Each repeat against the replay: the verifier's own noise.
  std::vector<std::vector<group_distance>> noise;
  /// Whether a repeat computed in another arithmetic. Other thread counts alone show too little of
  /// what honest machines do to accuse by.
  bool other_arithmetic = false;
  std::vector<std::vector<double>> noise_losses;
  double gradient_norm_mean =
      0;  ///< mean l2 norm of the gradients over the segment's steps (Lab Apex VMO)
  double load_seconds = 0, replay_seconds = 0, noise_seconds = 0;
};

struct loss_measurement {
  loss_request request;
  measured status = measured::ok;
  std::string message;
  std::string not_finite;  ///< as above
  double loss = 0;
  std::vector<double> noise;  ///< losses of repeats in other arithmetics
  double seconds = 0;
};

struct subset_loss_measurement {
  subset_loss_request request;
  measured status = measured::ok;
  std::string message;
  std::string not_finite;                   ///< as above
  double mean = 0, standard_deviation = 0;  ///< over the samples
  double seconds = 0;
};

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
// The job: what client and prover agreed before step 0 (soundness.md rule 2). It is canonical JSON
// (RFC 8785); its id is SHA-256("potl.job.v1" 0x00 bytes). What a check needs without running
// Python is a field here; the rest of the recipe (classes, options, code digest) is the free-form
// object "task", compared as a whole.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/hasher.hpp>

namespace potl {
class json_value;
}  // namespace potl

namespace potl::transcript {

/// The most steps that a job can have, and that can lie between two of its states.
inline constexpr std::uint64_t max_job_steps = std::uint64_t{1} << 48;

/// The learning rates of all parameter groups (of all optimizers, in order) during `steps`
/// consecutive steps.
struct rate_run {
  std::uint64_t steps = 0;
  std::vector<double> rates;
};

/// An order of samples that a task brings itself. The ids are recomputed by whoever has the task;
/// without it every step is still compared with what was agreed.
struct own_order {
  std::uint64_t samples = 0;  ///< drawn per epoch
  digest steps;               ///< order_digest over all steps of the job
};

/// Of a job's text.
inline constexpr std::uint64_t max_job_bytes = std::uint64_t{16} << 20;

/// What was agreed before step 0.
struct job {
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;  ///< optimizer updates in all
  std::uint64_t epochs = 0;
  std::uint64_t batch_size = 0;        ///< samples per step (all micro-batches together)
  std::uint64_t accumulate = 1;        ///< micro-batches per step
  bool drop_last = false;              ///< whether the last, smaller batch of an epoch is left out
  std::uint64_t checkpoint_every = 0;  ///< steps between checkpoints
  /// Longest allowed distance between stored checkpoints, in steps: above checkpoint_every the
  /// trainer may prune, and segments are that much longer whether it does or not.
  std::uint64_t max_segment = 0;
  /// Not 0: only every so many steps a checkpoint is stored. The trainer derives those between when
  /// they are challenged, which needs a reproducible arithmetic.
  std::uint64_t store_every = 0;
  std::uint64_t data_count = 0;          ///< samples
  digest data_root;                      ///< Merkle root over the samples' canonical bytes
  std::optional<own_order> order;        ///< absent: an epoch is the permutation PRF(seed, epoch)
  digest initial_state;                  ///< state digest at step 0
  bool initial_state_from_seed = true;   ///< false: the digest of a published file
  std::vector<rate_run> rates;           ///< empty: metric-driven, the rates are replayed state
  std::vector<std::uint64_t> rate_ends;  ///< last step of each of `rates`; filled by parse_job
  std::string arithmetic = "stock";      ///< mode id, numerics.md
  double tolerance_cap = 0.1;  ///< largest calibrated tolerance as a share of a segment's update
  std::uint64_t max_resumes = 16;    ///< interruptions after which the recording may go on
  std::uint64_t max_superseded = 0;  ///< steps recorded twice because of resumes, in all
  std::optional<digest> trainer;     ///< raw Ed25519 public key; absent: who trained is not proven
  std::string text;                  ///< the canonical bytes that were parsed

  digest id() const;
  json_value document() const;            ///< `text` as values; throws where nothing was parsed
  std::uint64_t steps_per_epoch() const;  ///< batches per epoch
  std::uint64_t epoch_of(std::uint64_t step) const;  ///< 0-based epoch of 1-based step
  std::uint64_t epoch_samples() const;               ///< samples drawn per epoch
  /// Sample ids of step (1-based), in batch order: a slice of the epoch's permutation PRF(seed,
  /// epoch). Throws usage where the task brings an order of its own.
  std::vector<std::int64_t> sample_ids(std::uint64_t step) const;
  /// Rates agreed for a step, or nothing when they are replayed state.
  const std::vector<double>* rates_at(std::uint64_t step) const;
  /// Steps of every segment but the last, which may be shorter: as many whole checkpoint_every as
  /// max_segment holds. What is stored has no say in it (soundness.md rule 16).
  std::uint64_t segment_steps() const;
  std::uint64_t segments() const;  ///< how many there are
  /// Whether a replay has the same bits on every machine, so that nothing is compared within a
  /// tolerance.
  bool is_exact() const { return arithmetic != "stock"; }
  /// Whether a segment begins or ends with this step: 0, the last, and every multiple of
  /// segment_steps().
  bool is_boundary(std::uint64_t step) const;
  /// Whether its state is stored while recording: multiples of checkpoint_every, or store_every.
  bool is_checkpoint(std::uint64_t step) const;
  /// Whether its state has to be there in a run that ends at `last`: what was derived for a
  /// challenge (store_every), or need not be kept (max_segment), stands in for nothing.
  bool fills_gap(std::uint64_t step, std::uint64_t last) const;
  /// Distance of the states that have to be there, in steps.
  std::uint64_t max_gap() const;
};

/// What a run keeps unless its job says otherwise: one state in how many of its segments' ends, so
/// that 20 states are kept, or 2 GB of them if that is more. Small states are worth more than their
/// disk: each that is not there has to be trained again when it is drawn.
std::uint64_t affordable_stride(std::uint64_t segments, std::uint64_t state_bytes);

/// Parses and validates; bounded by max_job_bytes. malformed/limit errors name the field.
result<job> parse_job(bytes_view text);

/// What step_record::sample_ids holds: SHA-256 over the ids as little-endian int64.
digest digest_of_ids(std::span<const std::int64_t> ids);

/// SHA-256("potl.order.v1" 0x00, what digest_of_ids gives for step 1, step 2, ...).
class order_digest {
 public:
  order_digest();
  void add(const digest& ids_of_step) { hash_.update(ids_of_step); }
  digest finish() { return hash_.finish(); }

 private:
  sha256 hash_;
};

/// Canonical JSON of the fields, for trainers without Python: `task` and `environment` are JSON
/// objects that describe the rest of the recipe. usage when parse_job would refuse the result.
result<std::string> format_job(const job& what, std::string_view task = "{}",
                               std::string_view environment = "{}");

}  // namespace potl::transcript

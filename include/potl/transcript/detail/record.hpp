// SPDX-License-Identifier: Apache-2.0
// Records of a transcript. Each is a leaf of the Merkle tree that the commitment signs.
// docs/format/transcript.md has the bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl::transcript {

inline constexpr std::uint32_t format_version = 1;
inline constexpr std::uint32_t max_software_bytes = 1024;  ///< of header_record::software
inline constexpr std::uint32_t max_rates = 4096;           ///< parameter groups of a step
inline constexpr std::uint32_t max_record_bytes = 64 * 1024;
/// Of a step. A referee has to be shown the whole log, so nobody can hide behind a longer one.
inline constexpr std::uint64_t max_rounding_log_bytes = std::uint64_t{4} << 20;

enum class step_flag : std::uint32_t {
  none = 0,
  skipped = 1,     ///< the gradient scaler skipped the update
  non_finite = 2,  ///< a loss or a gradient was NaN or infinite
  resumed = 4,     ///< the first step after a resume
  checkpoint = 8,  ///< a checkpoint of this step's state is stored
};

inline constexpr std::uint32_t all_step_flags = 15;
/// What the training itself says; the others are of how it was recorded.
inline constexpr std::uint32_t training_step_flags = 3;

constexpr bool has(std::uint32_t flags, step_flag one) noexcept {
  return (flags & static_cast<std::uint32_t>(one)) != 0;
}
/// Something was not finite, in an update that no gradient scaler skipped: scalers skip those whose
/// gradients overflow, and a replay sees whether they did.
bool has_diverged(std::uint32_t flags) noexcept;

/// Opens the log: which job, who trains, with what.
struct header_record {
  digest job_id;
  digest trainer;        ///< raw Ed25519 public key of this run
  std::string software;  ///< e.g. "potl 0.1.0 torch 2.13.0+cpu"; informative
};

/// State before the first step.
struct initial_record {
  digest job_id;
  digest state;
};

/// A step's rounding log (numeric/rounding_log.hpp): bound before any challenge, kept in a
/// file.
struct rounding_reference {
  digest content;           ///< rounding_log_digest() of its bytes
  std::uint64_t bytes = 0;  ///< 1 to max_rounding_log_bytes

  friend bool operator==(const rounding_reference&, const rounding_reference&) = default;
};

struct step_record {
  digest job_id;
  std::uint64_t step = 0;          ///< 1-based: the number of updates after it
  std::uint64_t epoch = 0;         ///< 0-based
  digest sample_ids;               ///< SHA-256 over the little-endian int64 ids in batch order
  double loss = 0;                 ///< mean loss of the batch before the update; its bits are bound
  std::vector<double> rates;       ///< learning rate of every parameter group used in this step
  std::uint64_t random_draws = 0;  ///< random operations drawn by the forward passes of this step
  std::uint32_t flags = 0;         ///< step_flag bits
  std::uint64_t duration_ns = 0;   ///< wall time of the step; informative
  digest state;                    ///< digest of the whole state after the step
  /// In log64 only. With it the record is one of version 2.
  std::optional<rounding_reference> rounding = {};
};

/// The same of a record, whose loss may say more than its flags.
bool has_diverged(const step_record& one) noexcept;
/// Whether one of the steps up to the one after `step` has diverged: an update may make a NaN of
/// finite gradients, and only the next step's record says so.
bool has_diverged_by(std::uint64_t step, std::span<const step_record> steps) noexcept;

/// Recording went on from a stored checkpoint (soundness.md rule 14). Both branches stay in the
/// log.
struct resume_record {
  digest job_id;
  std::uint64_t from_step = 0;  ///< checkpoint that was restored
  std::uint64_t last_step = 0;  ///< last step recorded before the crash (>= from_step)
  std::uint64_t number = 0;     ///< 1 for the first resume; later checkpoints carry it as branch
  std::uint64_t log_size = 0;   ///< records before this one
  digest log_root;              ///< Merkle root of those records
  digest state;                 ///< state digest that was restored
  /// Ed25519 by the trainer over all of the above, domain "potl.resume.v1".
  std::array<std::uint8_t, 64> signature{};
};

/// Ends a run; nothing follows it.
struct close_record {
  digest job_id;
  std::uint64_t step = 0;
  digest state;
  digest telemetry;  ///< SHA-256 of telemetry.log; zero when there is none
};

using record =
    std::variant<header_record, initial_record, step_record, resume_record, close_record>;

std::vector<std::uint8_t> encode(const record& what);
/// encode(), appended to `out`.
void encode_into(const record& what, std::vector<std::uint8_t>& out);
/// What resume_record::signature signs: the domain, a zero byte, the encoding without the
/// signature.
std::vector<std::uint8_t> resume_message(const resume_record& what);
/// Strict inverse: exactly one encoding per record; malformed otherwise.
result<record> decode(bytes_view bytes);

/// A stored checkpoint. Branch 0 is the first attempt, n what followed resume n.
struct checkpoint_info {
  std::uint64_t step = 0;
  std::uint64_t branch = 0;
  digest state;
  std::uint64_t file_bytes = 0;
};

/// Steps that a resume replaced: from_step + 1 .. last_step, all recorded in `branch`. The state at
/// from_step was recorded in `start_branch`: evidence::load_state(from_step, start_branch), if it
/// is a checkpoint.
struct superseded_range {
  std::uint64_t branch = 0;
  std::uint64_t from_step = 0;
  std::uint64_t last_step = 0;
  std::uint64_t start_branch = 0;
};

}  // namespace potl::transcript

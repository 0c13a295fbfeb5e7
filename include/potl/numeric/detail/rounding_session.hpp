// SPDX-License-Identifier: Apache-2.0
// log64 over a training: one object per side, fed with the near ties of every operator call.
//
// Use, in the kernels' adapter (one session per training, one thread):
//
//   session.begin_step(1);                       // trainer; an auditor gives the trainer's log too
//   ... for every result that log64 rounds, in the order in which the step computes them:
//   auto ties = gemm_log64(a, b, c, {session.bits(), session.order()}, executor);
//   session.apply("linear", {c.data, size}, ties, matrix_operands(a, b));
//   ...
//   step_log log = session.end_step();           // trainer: store log.bytes, commit log.content
//   step_audit audit = session.end_audit();      // auditor: accepted() or rejections with proofs
//
// apply() changes nothing for a trainer; for an auditor it replaces the elements that the trainer
// rounded the other way. `c` is contiguous, ties ascend by index, and the operator calls of both
// sides are the same. Without a role (log_role::none) apply() does nothing.
//
// Claims (auditor): after apply() every element has the value that
// numeric/detail/rounding_referee.hpp prescribes, so that both sides go on with the same bits if
// the trainer is honest. What it accuses of is decided by exact dot products and comes with a
// proof. It looks at every entry, and computes one exact dot product for each that disagrees with
// its own rounding, for each that its own list lacks, and for each of its own ties that is not
// logged; after the first rejection in a step, entries beyond its own list are looked at only where
// they can change a result, so that a flood costs the trainer the job and the auditor nothing. So a
// result is a function of operands and log alone, whatever the log is and in whatever order one
// adds; what is not a log counts as one without entries. False alarms: none. Cannot see: steering
// inside the window; the audit reports how far it moved results of the step, and could have, which
// bounds no weights. Directions that all point one way accuse nobody: a tie plus a sum of tiny
// positive terms is rounded up by everybody.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/numeric/detail/matrix.hpp>
#include <potl/numeric/detail/rounding.hpp>
#include <potl/numeric/detail/rounding_referee.hpp>
#include <potl/numeric/gemm.hpp>
#include <potl/numeric/rounding_log.hpp>

namespace potl::numeric {

enum class log_role { none, trainer, auditor };

struct session_options {
  log_role role = log_role::none;
  int bits = 32;
  std::uint64_t order = 0;  ///< for the kernels: 0 is the default order of summation
};

/// Fills the two rows of operands of the element with this index, in the order of the terms.
using element_operands =
    std::function<void(std::uint64_t index, std::vector<float>& a, std::vector<float>& b)>;

/// Element (row, column) of a * b. The matrices must outlive the call that uses it.
element_operands matrix_operands(matrix<const float> a, matrix<const float> b);
/// The same for many products; the index is that of the batched gemm_log64.
element_operands matrix_operands(const gemm_batch& batch, matrix<const float> a,
                                 matrix<const float> b);

struct step_log {
  std::uint64_t step = 0;
  std::vector<std::uint8_t> bytes;
  digest content;  ///< rounding_log_digest(bytes)
  std::uint64_t values = 0;
  std::uint64_t entries = 0;
};

/// Counts of one kind of operator in one step (or several, added).
struct kind_counts {
  std::uint64_t values = 0;
  std::uint64_t ties = 0;         ///< own near ties
  std::uint64_t corrections = 0;  ///< elements that apply() changed
};

struct log_rejection {
  log_fault fault = log_fault::none;
  std::string message;
  std::optional<fraud_proof> proof;  ///< none where the step's leaf and the log speak alone
};

struct step_audit {
  std::uint64_t step = 0;
  std::uint64_t values = 0;
  std::uint64_t entries = 0;      ///< in the trainer's log
  std::uint64_t own_ties = 0;     ///< near ties of this side
  std::uint64_t corrections = 0;  ///< elements rounded the other way, as the log says
  std::uint64_t exact_dots = 0;   ///< exact dot products computed
  double moved_l2 = 0;            ///< length of all corrections, in the results' own units
  double reachable_l2 = 0;        ///< what a trainer could have moved within the window
  double reachable_linf = 0;
  std::vector<log_rejection> rejections;  ///< at most max_rejections; empty when all is well
  std::uint64_t rejected = 0;             ///< elements and properties at fault, also those left out

  bool accepted() const noexcept { return rejected == 0; }
};

inline constexpr std::size_t max_rejections = 16;

class rounding_session {
 public:
  /// Throws potl::exception (usage) when bits are not 23 to 32.
  explicit rounding_session(session_options options);

  log_role role() const noexcept { return options_.role; }
  int bits() const noexcept { return options_.bits; }
  std::uint64_t order() const noexcept { return options_.order; }

  /// Misuse (another role, a step in a step, another thread) throws potl::exception (usage).
  void begin_step(std::uint64_t step);
  /// `committed`: the digest in the step's leaf; nothing when the leaf has none.
  void begin_step(std::uint64_t step, bytes_view log, std::optional<digest> committed);
  void apply(std::string_view kind, std::span<float> results, std::span<const near_tie> ties,
             const element_operands& operands);
  step_log end_step();
  step_audit end_audit();
  /// Auditor, in a step: looks at the element at this position of the log, as a referee does.
  void watch(std::uint64_t position);
  /// The ruling on it, once its result was applied.
  const std::optional<element_ruling>& watched() const noexcept { return watched_; }
  /// Elements of the step so far that were rounded.
  std::uint64_t values() const noexcept { return values_; }
  /// Forgets the step, after an error in it.
  void cancel_step() noexcept;

  /// Since the session began, by the kind given to apply().
  const std::map<std::string, kind_counts, std::less<>>& counts() const noexcept { return counts_; }

 private:
  void require(bool condition, const char* what) const;
  void start(std::uint64_t step);
  void log_ties(std::span<const float> results, std::span<const near_tie> ties);
  std::uint64_t follow(std::span<float> results, std::span<const near_tie> ties,
                       const element_operands& operands);
  void look(std::span<float> results, const element_operands& operands);
  void rule(float& result, std::uint64_t index, std::optional<bool> logged,
            const element_operands& operands);
  fraud_proof proof_of(log_fault fault, const fraud_element* element) const;
  void reject(log_fault fault, std::string message, std::optional<fraud_proof> proof);

  session_options options_;
  bool in_step_ = false;
  bool has_log_ = false;  // an auditor's: well-formed and committed
  std::thread::id thread_;
  std::uint64_t step_ = 0;
  std::uint64_t values_ = 0;  // of the step so far
  rounding_log log_;
  std::vector<std::uint8_t> log_bytes_;
  std::size_t next_entry_ = 0;
  std::optional<std::uint64_t> watched_position_;
  std::optional<element_ruling> watched_;
  double moved_squares_ = 0;
  double reachable_squares_ = 0;
  step_audit audit_;
  std::map<std::string, kind_counts, std::less<>> counts_;
};

}  // namespace potl::numeric

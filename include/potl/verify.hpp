// SPDX-License-Identifier: Apache-2.0
// Verification of a run by a C++ program that can train: potl::verify(run, workload, checks...).
//
// Claims: the same requests, judges and report as from Python; this file only fulfils requests.
// Assumes: the workload is the verifier's own code on the verifier's own data (the caller compares
// that data with the job's root), its arithmetic is the job's, and it was built anew: the state it
// holds when verify is called is the honest initial state of control experiments.
// Cost: that of the checks; states are loaded one segment at a time.
// Whose fault an exception is, an experiment decides: the step that failed is run again from the
// workload's own initial state. Only when that works, and the recorded state fails a second time in
// the same way, does the record carry the blame. Memory and files are always the verifier's.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <potl/checks/pev.hpp>
#include <potl/checks/replay.hpp>
#include <potl/checks/telemetry.hpp>
#include <potl/core/digest.hpp>
#include <potl/policy.hpp>
#include <potl/report.hpp>
#include <potl/transcript/evidence.hpp>
#include <potl/transcript/state.hpp>

namespace potl {

/// What one step did.
struct step_outcome {
  double loss = 0;            ///< mean loss of the batch before the update
  std::vector<double> rates;  ///< learning rate of every parameter group used in this step
  bool skipped = false;       ///< the gradient scaler skipped the update
  double gradient_norm = 0;   ///< l2 norm over all parameters
};

/// Mean and standard deviation of the per-sample losses of a set.
struct subset_outcome {
  double mean = 0;
  double standard_deviation = 0;
};

/// Something that can be replayed. Steps count from 1; ids are in batch order. `perturb` chooses
/// among equivalent ways to compute (another order of sums, another number of threads): 0 is the
/// usual one, other numbers show how large honest noise is (soundness.md rule 12).
template <class Workload>
concept workload = requires(Workload& one, const transcript::state& state, std::uint64_t number,
                            std::span<const std::int64_t> ids) {
  one.load_state(state, number);
  { one.run_step(number, ids) } -> std::convertible_to<step_outcome>;
  { one.capture() } -> std::convertible_to<transcript::state>;
  { one.batch_loss(number, ids) } -> std::convertible_to<double>;
  { one.subset_loss(ids) } -> std::convertible_to<subset_outcome>;
  one.perturb(number);
};

/// The options of one check, which select it.
using any_check =
    std::variant<checks::telemetry_options, checks::pev_options, checks::replay_options>;

/// What a verification draws, remembers and compares with.
struct verify_options {
  /// Absent, which is right except for reproducing a report: drawn now, after the commitment was
  /// received. All zeros is refused: nobody drew it.
  std::optional<digest> nonce;
  /// Where the challenges of this job are remembered, all of which are repeated, and commitments,
  /// of which there must be one. Absent: transcript::default_ledger(). Empty: nowhere, for trials.
  std::optional<std::string> ledger;
  potl::policy policy;
  std::string model;  ///< path of the delivered safetensors file; empty: none
  std::string software = "potl";
  std::string reproduce;
};

namespace detail {

/// A workload behind a table of virtual functions, so that the driver is compiled once.
class workload_handle {
 public:
  virtual ~workload_handle() = default;
  virtual void load_state(const transcript::state& state, std::uint64_t step) = 0;
  virtual step_outcome run_step(std::uint64_t step, std::span<const std::int64_t> ids) = 0;
  virtual transcript::state capture() = 0;
  virtual double batch_loss(std::uint64_t step, std::span<const std::int64_t> ids) = 0;
  virtual subset_outcome subset_loss(std::span<const std::int64_t> ids) = 0;
  virtual void perturb(std::uint64_t way) = 0;
};

template <workload Workload>
class workload_of : public workload_handle {
 public:
  explicit workload_of(Workload& one) : one_(one) {}
  void load_state(const transcript::state& state, std::uint64_t step) override {
    one_.load_state(state, step);
  }
  step_outcome run_step(std::uint64_t step, std::span<const std::int64_t> ids) override {
    return one_.run_step(step, ids);
  }
  transcript::state capture() override { return one_.capture(); }
  double batch_loss(std::uint64_t step, std::span<const std::int64_t> ids) override {
    return one_.batch_loss(step, ids);
  }
  subset_outcome subset_loss(std::span<const std::int64_t> ids) override {
    return one_.subset_loss(ids);
  }
  void perturb(std::uint64_t way) override { one_.perturb(way); }

 private:
  Workload& one_;
};

json_value verify(const transcript::evidence& run, workload_handle& work,
                  const verify_options& options, std::span<const any_check> wanted);

}  // namespace detail

/// The report (docs/format/report.schema.json). Throws usage when the options of a check are
/// nonsense, the nonce is zero, or the ledger is another job's.
template <workload Workload, class... Checks>
requires(std::convertible_to<Checks, any_check>&&...) json_value
    verify(const transcript::evidence& run, Workload& work, const verify_options& options,
           const Checks&... wanted) {
  detail::workload_of<Workload> handle(work);
  const std::vector<any_check> all{any_check(wanted)...};
  return detail::verify(run, handle, options, all);
}

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
// Verification of a run by a C++ program that can train: potl::verify(run, workload, checks...).
//
// Claims: the same requests, answers, judges and report as from Python.
// Assumes: a workload as checks/workload.hpp describes it.
// Cost: that of the checks; states are loaded one segment at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <potl/checks/check.hpp>
#include <potl/checks/pev.hpp>
#include <potl/checks/replay.hpp>
#include <potl/checks/replayer.hpp>
#include <potl/checks/telemetry.hpp>
#include <potl/checks/workload.hpp>
#include <potl/core/digest.hpp>
#include <potl/evidence/evidence.hpp>
#include <potl/policy.hpp>
#include <potl/report.hpp>

namespace potl {

/// What a verification draws, remembers and compares with.
struct verify_options {
  /// Absent, which is right except for reproducing a report: drawn now, after the commitment was
  /// received. All zeros is refused: nobody drew it.
  std::optional<digest> nonce{};
  /// Where the challenges of this job are remembered, all of which are repeated, and commitments,
  /// of which there must be one. Absent: transcript::default_ledger(). Empty: nowhere, for trials.
  std::optional<std::string> ledger{};
  potl::policy policy{};
  std::string model{};  ///< path of the delivered safetensors file; empty: none
  std::string software = "potl";
  std::string reproduce{};
  /// Seconds that one request may take; beyond it the verdict is at best inconclusive.
  std::optional<double> timeout{};
};

namespace detail {

json_value verify(const transcript::evidence& run, checks::any_workload& work,
                  const verify_options& options, std::span<const checks::check_pointer> wanted);

inline checks::check_pointer as_check(checks::check_pointer one) { return one; }

/// The registered check that these are the options of.
template <class Options>
checks::check_pointer as_check(const Options& options) {
  return checks::make_check(Options::check, checks::options_json(options)).value();
}

}  // namespace detail

/// The report (docs/format/report.schema.json). A check is named by its options, or is a
/// checks::check_pointer. Throws usage when options are nonsense, the nonce is zero, or the ledger
/// is another job's, or the workload, if it says which it is of: agreed().
template <workload Workload, class... Checks>
json_value verify(const transcript::evidence& run, Workload& work, const verify_options& options,
                  const Checks&... wanted) {
  if constexpr (requires { work.agreed().id(); }) {
    if (work.agreed().id() != run.agreed().id()) {
      throw exception({errc::usage, "the workload is of another job than the run",
                       "make it of the job that you agreed on"});
    }
  }
  checks::workload_of<Workload> handle(work);
  const std::vector<checks::check_pointer> all{detail::as_check(wanted)...};
  return detail::verify(run, handle, options, all);
}

}  // namespace potl

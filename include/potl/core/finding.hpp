// SPDX-License-Identifier: Apache-2.0
// Findings and verdicts as values. soundness.md rules 7, 10, 11 and 13 turn findings into a
// verdict, in report.hpp only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace potl {

/// What one look at the evidence came to.
enum class outcome {
  pass,          ///< looked at, as it should be
  reject,        ///< evidence of a cheat
  inconclusive,  ///< could not be judged: the verifier's own trouble, or too little to see
  note,          ///< for the reader; decides nothing
};

/// What a verification came to.
enum class verdict { accepted, rejected, inconclusive };

/// Names as reports write them, e.g. "inconclusive".
const char* to_string(outcome what) noexcept;
const char* to_string(verdict what) noexcept;

/// One piece of evidence.
struct finding {
  std::string check;  ///< "transcript", "telemetry", "pev", "replay", "model", "verifier"
  std::string rule;   ///< id from core/rules.hpp; empty for notes
  outcome result = outcome::note;
  std::string reason;                                  ///< one sentence with the numbers in it
  std::optional<std::uint64_t> first_step, last_step;  ///< where
  std::optional<double> statistic, threshold;
  /// Of this outcome on an honest run, when it can be stated.
  std::optional<double> error_probability;
  std::vector<std::pair<std::string, std::string>> details;
};

}  // namespace potl

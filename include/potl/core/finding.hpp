// SPDX-License-Identifier: Apache-2.0
// Findings and verdicts as values. soundness.md rules 7, 10, 11 and 13 turn findings into a
// verdict, in report.hpp only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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

/// Something that a finding knows beside its sentence. What decides reads it by its type; to_string
/// is for readers: nine digits of a number, "true" or "false".
using fact = std::variant<std::string, bool, std::uint64_t, double>;
std::string to_string(const fact& what);

/// One piece of evidence.
struct finding {
  std::string check;  ///< name of a registered check, e.g. "transcript" (checks/check.hpp)
  std::string rule;   ///< id from core/rules.hpp; empty for notes
  outcome result = outcome::note;
  std::string reason;                                  ///< one sentence with the numbers in it
  std::optional<std::uint64_t> first_step, last_step;  ///< where
  std::optional<double> statistic, threshold;
  /// Of this outcome on an honest run, when it can be stated.
  std::optional<double> error_probability;
  std::vector<std::pair<std::string, fact>> details;

  /// The detail of this name, or null when there is none of this type.
  template <class Value>
  const Value* detail(std::string_view name) const noexcept {
    for (const auto& [key, value] : details) {
      if (key == name) return std::get_if<Value>(&value);
    }
    return nullptr;
  }
};

}  // namespace potl

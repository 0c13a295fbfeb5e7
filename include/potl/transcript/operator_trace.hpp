// SPDX-License-Identifier: Apache-2.0
// The operators of one step, each with a digest of what it returned: names the first one that two
// machines disagree on.
//
// A replay in a reproducible arithmetic that differs names the step. The trainer then traces that
// step and leaves traces/step-N.json in the run directory; the next verification traces it, too.
// A trace convinces nobody by itself: it says where to look.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl::transcript {

/// A call of an operator.
struct traced_operator {
  std::string name;  ///< as torch spells it in Python, such as "aten.mm.default"
  digest result;     ///< of the types, shapes and contents that it returned
  friend bool operator==(const traced_operator&, const traced_operator&) = default;
};

/// What the operators of one step returned, in the order of the calls.
struct operator_trace {
  std::uint64_t step = 0;
  digest before;  ///< of the state that the step started from
  std::vector<traced_operator> operators;
};

/// Whether an operator returns memory as it was, so that its contents belong in no digest.
bool returns_unset(std::string_view name) noexcept;

/// The first operator that differs, such as "operator 12 of 80, aten.mm.default"; nothing when all
/// agree. Throws usage when the traces are of different steps or start from different states.
std::optional<std::string> first_difference(const operator_trace& own, const operator_trace& other);

/// Writes traces/step-N.json into a run directory; gives the path. A link in its place is refused.
result<std::string> write_trace(const std::string& directory, const operator_trace& trace);

/// The trace that somebody left in a run directory. missing: there is none; malformed: it is not a
/// trace of that step.
result<operator_trace> read_trace(const std::string& directory, std::uint64_t step);

}  // namespace potl::transcript

// SPDX-License-Identifier: Apache-2.0
// The part of a report that answers "may I pay?": what follows from the rest of it, for a reader
// who knows nothing of potl.
//
// Claims: "answer" is the verdict in one sentence, "looked_at" what it rests on, "next" what would
// make it stronger or possible, and what that costs.
// Assumes: a segment costs next time what it cost on average this time.
// Cost: a few hundred evaluations of the detection formula.
#pragma once

#include <span>
#include <string>

#include <potl/report.hpp>

namespace potl::detail {

/// What the document has before the answer is added, beside its findings.
struct answer_facts {
  const checks::run_view* run = nullptr;  ///< null: it could not be opened
  standing where;
  policy wanted;
  verdict result = verdict::inconclusive;
  const json_value::array& replays;  ///< "replays" of the document
  const report_context& context;
};

/// Whether it can decide anything. Of a check that nobody registered nothing is known, so that
/// nothing of it is waved through.
bool may_reject(const finding& one);

std::string answer_of(std::span<const finding> findings, const standing& where, verdict result);

/// One phrase for each thing that was looked at.
json_value looked_at_json(std::span<const finding> findings, const answer_facts& facts);

/// {"steps", "seconds_per_segment", "stronger"}.
json_value next_json(std::span<const finding> findings, const answer_facts& facts);

}  // namespace potl::detail

// SPDX-License-Identifier: Apache-2.0
// The report: verdict, findings, strength, replays, losses, cost and limits as one JSON document.
//
// Claims: docs/format/report.schema.json describes it; the same inputs give the same bytes (RFC
// 8785).
// Assumes: costs and command lines in the context are the driver's own measurements.
// Cost: linear in steps and findings; the loss timeline keeps at most 1,000 points.
// Cannot detect: anything. The verdict is policy.hpp's.
#pragma once

#include <string>
#include <vector>

#include <potl/checks/run_view.hpp>
#include <potl/checks/spot_check.hpp>
#include <potl/encoding/json.hpp>
#include <potl/policy.hpp>

namespace potl {

/// What the driver knows beside the findings.
struct report_context {
  std::string nonce;                                  ///< of the present challenge, hexadecimal
  std::string reproduce;                              ///< the command that gives this report again
  std::string software;                               ///< e.g. "potl 0.1.0"
  double seconds = 0;                                 ///< the whole verification
  std::vector<std::pair<std::string, double>> costs;  ///< seconds by check
  std::vector<std::pair<std::string, json_value>> checks;  ///< what was asked: name, options

  /// From {"nonce", "reproduce", "software", "seconds", "costs": {check: seconds}, "checks":
  /// [{"check", "options"}]}; every member may be missing. usage: names the wrong one.
  static result<report_context> parse(const json_value& from);
};

/// The document. `run` may be null: then the run could not be opened at all.
json_value make_report(const checks::run_view* run, std::vector<finding> findings,
                       const policy& wanted, const report_context& context);

/// The document of a session in which the client's own trusted side guarded a worker. `findings`
/// are those of judge_spot_check; the timeline has the losses that the worker said.
json_value make_guarded_report(const transcript::job& agreed,
                               const checks::spot_check_result& session,
                               std::vector<finding> findings, const report_context& context);

}  // namespace potl

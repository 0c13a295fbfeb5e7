// SPDX-License-Identifier: Apache-2.0
// What one verification asks: the checks of now and those of all earlier verifications of the job,
// each under its nonce. The same for every driver.
//
// Claims: a prover that may hope for another draw gains nothing, since every earlier one is asked
// again; what several questions ask for is answered once; and what rejects alone ends the work.
// Cost: that of planning, which reads states only for replay's reach and top_q.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <potl/checks/check.hpp>
#include <potl/checks/request.hpp>
#include <potl/checks/run_view.hpp>
#include <potl/core/digest.hpp>
#include <potl/core/finding.hpp>
#include <potl/evidence/detail/ledger.hpp>

namespace potl::checks {

/// A check under one nonce.
struct question {
  check_pointer check;
  digest nonce;
  bool earlier = false;  ///< here only because it was asked before
  std::vector<request> plan;
};

/// The questions of now, then those of earlier verifications that they do not contain. A draw that
/// a present check can join is joined to it. `unknown` gets the names of earlier checks that nobody
/// registered here.
std::vector<question> with_earlier(std::vector<question> asked,
                                   const transcript::ledger_memory& known,
                                   std::vector<std::string>* unknown = nullptr);

/// The questions with their requests, without earlier ones that would ask for nothing more; of a
/// run that the audit rejects, those that ask nothing of a workload. Throws what planning fails
/// with.
std::vector<question> planned(std::vector<question> asked, const run_view& run, bool rejected);

/// All requests of the questions, each once, in the order in which states are cheapest to reach.
std::vector<request> distinct_requests(std::span<const question> questions);

/// Whether one measurement rejects the run, whatever the others will be: then nothing more needs to
/// be asked. No noise excuses a state that is withheld, tampered with or not finite, nor other bits
/// where replay is exact.
bool settles(std::span<const question> questions, const run_view& run, const measurement& one);

/// Answers requests of one list, in any order; fewer when it was told to stop.
using answering = std::function<std::vector<measurement>(const std::vector<request>& asked)>;

/// What a question got of these answers, each to the very request of its plan; where it wants to
/// know more before it judges, `more` is asked and replaces what it had.
std::vector<measurement> answers_to(const question& one, const run_view& run,
                                    std::span<const measurement> all, const answering& more);

/// What the check says to these answers. One that says nothing at all has shown nothing: it is
/// inconclusive. Throws what judging fails with.
std::vector<finding> judged(const question& one, const run_view& run,
                            std::span<const measurement> answers);

}  // namespace potl::checks

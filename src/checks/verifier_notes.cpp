// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/verifier_notes.hpp>

#include "checks/judging.hpp"

namespace potl::checks {

std::vector<finding> verifier_notes(const transcript::evidence& run, const verifier_work& done) {
  std::vector<finding> out;
  const auto note = [&](std::string reason) {
    out.push_back(make_finding("verifier", "", outcome::note, std::move(reason)));
  };
  if (done.verified_before) {
    note("this job was verified before: " +
         std::string(done.rejected ? "" : "earlier challenges are repeated and ") +
         "earlier commitments compared (" + done.ledger.value_or("the ledger") +
         " remembers them)");
  }
  // Without an own job and a commitment nothing is accepted, and nothing could be remembered.
  if (!done.ledger && run.job_is_own() && run.committed()) {
    note(
        "no ledger was kept: earlier challenges of this job were not repeated, and earlier "
        "commitments not compared");
  }
  if (done.nonce_given) {
    // Whoever knew a nonce in time knew what it selects.
    note(
        "the nonce was given, and not drawn now: to a trainer that knew it before it committed, "
        "the draw was no secret");
    out.back().details.emplace_back("given_nonce", true);
  }
  if (done.rejected) note("the record itself is rejected, so that nothing was recomputed");
  for (const std::string& name : done.unknown) {
    note("the check " + name +
         ", asked in an earlier verification, is not known here and was not repeated");
  }
  if (done.not_looked_at > 0) {
    note("what was seen rejects the run, so that " + std::to_string(done.not_looked_at) +
         " more requests were not looked at");
  }
  return out;
}

}  // namespace potl::checks

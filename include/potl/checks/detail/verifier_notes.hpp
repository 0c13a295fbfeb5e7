// SPDX-License-Identifier: Apache-2.0
// What a report says of the verifier's own work: the drivers in C++ and in Python say it here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <potl/core/finding.hpp>
#include <potl/evidence/evidence.hpp>

namespace potl::checks {

struct verifier_work {
  bool nonce_given = false;           ///< and not drawn in this verification
  bool rejected = false;              ///< by the record itself, so that nothing was recomputed
  std::optional<std::string> ledger;  ///< its path, where one was kept
  bool verified_before = false;       ///< the ledger knew commitments of this job
  std::vector<std::string> unknown;   ///< names of earlier checks that are not registered
  std::uint64_t not_looked_at = 0;    ///< requests, after what rejects by itself
};

/// Findings of the check "verifier", all of them notes. The one of a given nonce has the detail
/// "given_nonce", for which the report's answer claims no draw after the commitment.
std::vector<finding> verifier_notes(const transcript::evidence& run, const verifier_work& done);

}  // namespace potl::checks

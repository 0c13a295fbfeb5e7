// SPDX-License-Identifier: Apache-2.0
// What a verifier remembers about a job: the challenges it drew and the commitments it was shown.
//
// Claims: a prover that may ask for another draw passes sooner or later (a 10 % cheat against 12
// samples passes once in 28 %), so every verification repeats all earlier challenges of its job;
// and a second commitment for a job is noticed.
// Assumes: the file is the verifier's own; nobody else may read it. It is written whole, durably,
// under a lock, before anything is asked of the prover, so that an aborted verification counts.
// Cost: milliseconds. Cannot know: what other verifiers of the job drew.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/encoding/json.hpp>

namespace potl::transcript {

/// One nonce that was used, and what was asked with it: pairs of check name and options.
struct ledger_challenge {
  digest nonce;
  std::vector<std::pair<std::string, json_value>> checks;
  double time = 0;                 ///< seconds since 1970
  std::optional<digest> document;  ///< digest of the challenge that the trainer was handed

  /// Whether the same was asked, whenever that was.
  bool asks_like(const ledger_challenge& other) const;
};

/// Oldest first; commitments without repetition.
struct ledger_memory {
  std::vector<ledger_challenge> challenges;
  std::vector<std::string> commitments;
};

/// The ledger of a job in the user's state directory (XDG_STATE_HOME, else ~/.local/state). usage:
/// there is neither.
result<std::string> default_ledger(const digest& job);

/// What is known; nothing where there is no file. usage: the file is not the ledger of this job,
/// which is never taken for an empty one.
result<ledger_memory> recall(const std::string& path, const digest& job);

/// Adds a commitment and a challenge, and gives what was known before. Makes the folder. While
/// another process has the ledger it waits; `interrupted` is called after each signal meanwhile,
/// and may throw.
result<ledger_memory> remember(const std::string& name, const digest& job,
                               const std::optional<std::string>& commitment,
                               const std::optional<ledger_challenge>& challenge,
                               const std::function<void()>& interrupted = {});

/// A challenge of now.
ledger_challenge challenge_of(const digest& nonce,
                              std::vector<std::pair<std::string, json_value>> checks);

}  // namespace potl::transcript

// SPDX-License-Identifier: Apache-2.0
// A party that says what it computed: the trainer, the auditor and the tests share it.
//
// Claims: it moves when it is its turn, once for each place, and only with what its functions give.
// With functions that report one run truthfully it is never convicted (game.hpp).
// Assumes: who sends its messages sends the same bytes again until a line answers them. After a
// crash a player that follows the same lines signs the same bytes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/result.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/dispute/proceedings.hpp>

namespace potl::dispute {

/// What a party knows of its own run. Each is asked about the expected move of `now`, whose
/// bisections and `inner()` say which step, operator and tensor it is about.
struct knowledge {
  std::function<claim(const proceedings& now)> claim_at;
  std::function<opening(const proceedings& now)> opening_at;
  std::function<answer(const proceedings& now)> answer_to;
};

/// One party, between the transcript and what it knows.
class player {
 public:
  /// `first`: the transcript's first line. usage: the key is not the party's.
  static result<player> join(const setting& known, party self, signing_key key, knowledge knows,
                             std::string_view first);

  /// The next line of the transcript; errors are those of proceedings::append. A line that was
  /// followed already changes nothing.
  status follow(std::string_view line);
  /// The message to send now. Nothing when it is not this party's turn, or when this turn's message
  /// was given before.
  std::optional<std::string> next_message();

  const proceedings& now() const noexcept { return now_; }

 private:
  player(proceedings now, party self, signing_key key, knowledge knows)
      : now_(std::move(now)), self_(self), key_(std::move(key)), knows_(std::move(knows)) {}

  proceedings now_;
  party self_;
  signing_key key_;
  knowledge knows_;
  std::vector<digest> lines_;
  std::optional<place> moved_;
};

}  // namespace potl::dispute

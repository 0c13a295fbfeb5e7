// SPDX-License-Identifier: Apache-2.0
// A dispute as its transcript tells it. The referee writes with it, both parties follow with it,
// and anybody judges a stored transcript again with it.
//
// Claims: every line that is taken was signed by the referee, continues the one before, and does
// what the rules of the game say. A verdict follows from the lines alone; what the referee
// decided by computing is in them as a decision, which judge_again has recomputed.
// Assumes: the keys.
// Cost: two signatures per line. Memory: the last openings and answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/dispute/entry.hpp>
#include <potl/dispute/game.hpp>
#include <potl/dispute/message.hpp>
#include <potl/transcript/commitment.hpp>
#include <potl/transcript/job.hpp>

namespace potl::dispute {

/// What everybody knows before a dispute: the job and three keys.
struct setting {
  setting(const transcript::job& agreed, const public_key& trainer_key,
          const public_key& auditor_key, const public_key& referee_key);
  /// The same for who has the job's id, its steps and its initial state alone.
  setting(const digest& job_id, std::uint64_t job_steps, const digest& initial_state,
          const public_key& trainer_key, const public_key& auditor_key,
          const public_key& referee_key);

  digest job;
  std::uint64_t steps = 0;
  digest initial;
  public_key trainer, auditor, referee;

  const public_key& key_of(party one) const noexcept {
    return one == party::trainer ? trainer : auditor;
  }
};

/// A transcript as far as it goes.
class proceedings {
 public:
  /// Reads the first line: malformed, limit, or mismatch where it is not of this setting.
  static result<proceedings> begin(const setting& known, std::string_view line);
  /// Reads the next line (without its newline); on an error nothing changes. malformed, limit:
  /// no line of a transcript; mismatch: not the referee's, not the next one, or against the rules.
  status append(std::string_view line);

  const game& state() const noexcept { return game_; }
  /// SHA-256 of the last line.
  const digest& head() const noexcept { return head_; }
  /// What the next message names as its parent: the last line but those that say that the referee
  /// was away, which a message on its way does not know.
  const digest& parent() const noexcept { return parent_; }
  const run_names& run() const noexcept { return run_; }
  /// Both commitments.
  const both<transcript::run_note>& notes() const noexcept { return notes_; }
  std::uint64_t last_at() const noexcept { return last_at_; }
  /// The step whose leaf both opened, from 1; 0 as long as it is not found.
  std::uint64_t step() const noexcept;
  /// Which bisection is being played, as the referee opened it. Absent between steps.
  const std::optional<inner_bisection>& inner() const noexcept { return inner_; }
  /// What each party opened last; both are there in the referee's turn.
  const both<opening>& openings() const noexcept { return openings_; }
  /// What the referee asked last, and the answers.
  const question& asked() const noexcept { return question_; }
  const both<answer>& answers() const noexcept { return answers_; }
  /// The most bytes that a message can have here and now: no transport has to read more.
  std::size_t message_bytes() const noexcept;

 private:
  friend class referee;
  proceedings(const setting& known, run_names run, both<transcript::run_note> notes,
              const game_rules& rules, std::uint64_t at);
  static result<proceedings> opened(const setting& known, const entry& first);

  /// What the entry does, and does it. `ignored` is not an error: it would change nothing.
  result<effect> apply(const entry& one);
  result<effect> take(const received& one, std::uint64_t at);
  result<effect> take(const oversized& one);
  result<effect> take(const inner_bisection& one, std::uint64_t at);
  result<effect> take(const question& one, std::uint64_t at);
  result<effect> take(const ruling& one);
  std::optional<reason> flaw_of(const message& one) const;
  void follow(std::string_view line, const entry& one);

  setting known_;
  run_names run_;
  both<transcript::run_note> notes_;
  game game_;
  digest head_, parent_;
  std::uint64_t last_at_ = 0;
  std::optional<inner_bisection> inner_;
  both<opening> openings_;
  question question_;
  std::uint64_t most_asked_ = 0;  // a network may repeat an answer to an earlier question
  both<answer> answers_;
};

/// A decision of the referee that a reader can compute again.
using decision = std::variant<inner_bisection, question, ruling>;
/// ok: computed again from what was opened before it, the decision is the same one.
using recomputation = std::function<status(const proceedings& before, const decision& made)>;

/// What a stored transcript says.
struct judged {
  verdict outcome;
  std::uint64_t believed = 0;  ///< decisions of the referee that were not recomputed
  std::uint64_t step = 0;      ///< the disputed step, 0 when it was not found
};

/// Judges a transcript, lines that each end with a newline, again. Where there is no recomputation
/// the decisions are believed, and counted; those that convict nobody (reason::referee) always are.
/// malformed, limit, mismatch: it is not a transcript of this setting. missing: it has no verdict.
/// What the recomputation returns as an error is returned.
result<judged> judge_again(const setting& known, std::string_view transcript,
                           const recomputation& again = {});

}  // namespace potl::dispute

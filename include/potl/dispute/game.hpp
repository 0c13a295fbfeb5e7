// SPDX-License-Identifier: Apache-2.0
// The dispute as a game: who moves, by when, what a move does, who loses and why.
//
// Claims: a party that only reports what it computed, and in time, is never convicted by these
// rules. What both claimed is what the honest one computed, so the lower end of every bisection is
// true; at the upper end the honest claim is true and the other one is not. What differs in the end
// is one leaf, which a referee can compute again.
// Assumes: a reproducible arithmetic, in which the truth does not depend on who computes it. The
// times are the referee's, and so is the word on who sent what: its transport tells the parties
// apart.
// Cost: 2 ceil(log2 n) claims per bisection over n, and at most four more: two openings, and two
// answers if the referee asks.
// Cannot detect: what the bytes behind a digest are; proceedings.hpp compares those.
// Source: Srivastava, Arora and Boneh, Optimistic Verifiable Training by Controlling Hardware
// Nondeterminism (NeurIPS 2024); docs/format/dispute.md has the protocol.
//
// Pure: no clock, no bytes, no keys. Times are milliseconds on one clock, the referee's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl::dispute {

/// Who disputes. In each round the trainer moves first.
enum class party : std::uint8_t { trainer, auditor };

/// The opponent.
constexpr party other(party one) noexcept {
  return one == party::trainer ? party::auditor : party::trainer;
}

/// Something of each party.
template <class Value>
struct both {
  Value trainer{};
  Value auditor{};

  constexpr Value& of(party one) noexcept { return one == party::trainer ? trainer : auditor; }
  constexpr const Value& of(party one) const noexcept {
    return one == party::trainer ? trainer : auditor;
  }
  friend bool operator==(const both&, const both&) = default;
};

/// What a bisection is over. The claim at index i is, after the first i of them:
enum class level_kind : std::uint8_t {
  steps,      ///< the state's digest
  operators,  ///< the root over their leaves, of one step or of one long reduction
  chunks,     ///< the root over the chunks of one tensor
};

/// What a party does in its turn.
enum class act : std::uint8_t {
  claim,    ///< gives the digest at an index
  opening,  ///< shows the leaf between two neighbours
  answer,   ///< gives what the referee asked for
};

/// What a move is about: bisection number `level`, from 0. The index of an opening and of an answer
/// is the number of the disputed leaf.
struct place {
  std::uint64_t level = 0;
  std::uint64_t index = 0;
  act what = act::claim;
  friend bool operator==(const place&, const place&) = default;
};

/// What is disputed: a job's id, and the SHA-256 of each party's commitment.
struct run_names {
  digest job, trainer, auditor;
  friend bool operator==(const run_names&, const run_names&) = default;
};

/// A party's move.
struct move {
  run_names run;
  digest parent;  ///< what the mover saw last
  place where;
  digest content;  ///< the claim itself; of an opening or an answer its SHA-256
};

/// Why a dispute ended.
enum class reason : std::uint8_t {
  agreement,      ///< both committed to the same final state
  silence,        ///< no move until the deadline
  garbage,        ///< what came is not a signed message of this format
  other_run,      ///< a move in another dispute
  other_parent,   ///< a move that answers something else than what came last
  other_place,    ///< another bisection, index or kind of move than the expected one
  contradiction,  ///< two contents for one place after one parent
  commitment,     ///< a claim that the party's commitment does not hold
  opening,        ///< an opening that does not fit the claims around it
  structure,      ///< ruling: the leaf is of another operator than the agreed program has there
  value,          ///< ruling: computed again, the value is another one
  referee,        ///< the referee could not decide; nobody is convicted
};

/// Their names in messages, in transcripts and in Python.
const char* to_string(party one) noexcept;
const char* to_string(level_kind one) noexcept;
const char* to_string(act one) noexcept;
const char* to_string(reason one) noexcept;

/// How a dispute ended.
struct verdict {
  both<bool> wrong;  ///< who lost; nobody, one or both
  reason why = reason::referee;

  /// The party that is right against the other one.
  std::optional<party> winner() const noexcept;
  friend bool operator==(const verdict&, const verdict&) = default;
};

/// The parties agree on what is at `low` and differ in what is at `high`.
struct bisection {
  level_kind kind = level_kind::steps;
  std::uint64_t size = 0;  ///< `high` in the beginning
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  digest agreed;         ///< at low
  both<digest> claimed;  ///< at high
  bool asked = false;    ///< whether the referee has asked for more

  bool is_narrow() const noexcept { return high - low == 1; }
  std::uint64_t middle() const noexcept { return low + (high - low) / 2; }
};

/// Whose turn it is, and for what.
struct turn {
  std::optional<party> who;  ///< absent: the referee's, or nobody's once there is a verdict
  place where;
  std::uint64_t deadline = 0;  ///< of a party. A move at this very time is in time
};

/// What is known before the first move.
struct game_rules {
  run_names run;
  std::uint64_t steps = 0;  ///< of the job
  digest initial;           ///< the state before them, as the job has it
  both<digest> final_state;
  std::uint64_t turn_ms = 0;  ///< how long a party may take for a move
};

/// Bisections inside each other: steps, operators, at most this many in all.
inline constexpr std::size_t max_levels = 8;
/// The most leaves that a bisection may have.
inline constexpr std::uint64_t max_leaves = std::uint64_t{1} << 48;

/// Whether something changed the game. What changes nothing (a repeated message, one out of turn)
/// is not recorded either.
enum class effect : std::uint8_t { ignored, taken };

/// One dispute. Functions of the referee return usage when it is not the time for them, and then
/// change nothing.
class game {
 public:
  /// Throws usage: no steps, no time, or more of them than there can be.
  game(const game_rules& rules, std::uint64_t at);

  const turn& expected() const noexcept { return turn_; }
  const std::optional<verdict>& decided() const noexcept { return verdict_; }
  bool is_referees_turn() const noexcept { return !verdict_ && !turn_.who; }
  /// From the steps inwards; the last one is being played.
  const std::vector<bisection>& bisections() const noexcept { return levels_; }
  /// How many moves of parties were taken.
  std::uint64_t moves() const noexcept { return made_.trainer.size() + made_.auditor.size(); }

  /// Whether a party's time was over before `at`.
  bool is_late(std::uint64_t at) const noexcept;
  /// A move of `from`. `head` is what a move has to name as its parent. `flaw`: what the caller
  /// found wrong with the move's content, if it is the expected one. Precondition: !is_late(at).
  effect play(party from, const move& one, const digest& head, std::uint64_t at,
              std::optional<reason> flaw = {});
  /// Something that is not a move came from `from`.
  effect garbage(party from);
  /// Looks at the clock: whoever was to move before `at` and did not has lost.
  effect tick(std::uint64_t at);
  /// The referee was away: the party whose turn it is gets its whole time again.
  effect restart(std::uint64_t at);

  /// Opens the next bisection inside the leaf that both opened: over `size` leaves, whose roots the
  /// parties have claimed. Operators lie in everything, chunks in operators.
  status next(level_kind kind, std::uint64_t size, const both<digest>& claimed, std::uint64_t at);
  /// Asks both for more about the disputed leaf; once for each bisection.
  status ask(std::uint64_t at);
  /// Ends the dispute. opening, structure and value convict at least one, in the referee's turn;
  /// referee convicts nobody, at any time.
  status rule(const both<bool>& wrong, reason why);

 private:
  struct done {
    place where;
    digest parent;
    digest content;
  };
  const done* before(party one, const place& where, const digest& parent) const noexcept;
  effect lose(party one, reason why);
  void take(party from, const move& one, std::uint64_t at);
  void after_both(std::uint64_t at);
  void expect(party who, std::uint64_t at);
  void bisect(std::uint64_t at);

  run_names run_;
  std::uint64_t turn_ms_;
  std::vector<bisection> levels_;
  both<std::vector<done>> made_;
  turn turn_;
  std::optional<verdict> verdict_;
};

}  // namespace potl::dispute

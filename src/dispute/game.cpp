// SPDX-License-Identifier: Apache-2.0
#include <potl/dispute/game.hpp>

#include <potl/crypto/merkle.hpp>
#include <potl/encoding/json.hpp>

namespace potl::dispute {
namespace {

error refused(const char* what) { return {errc::usage, what, ""}; }

/// The last time that a transcript can name.
constexpr auto last_time = static_cast<std::uint64_t>(json_max_integer);
/// More moves than most disputes take.
constexpr std::size_t expected_moves = 48;

}  // namespace

const char* to_string(party one) noexcept { return one == party::trainer ? "trainer" : "auditor"; }

const char* to_string(level_kind one) noexcept {
  switch (one) {
    case level_kind::steps: return "steps";
    case level_kind::operators: return "operators";
    case level_kind::chunks: return "chunks";
  }
  return "unknown";
}

const char* to_string(act one) noexcept {
  switch (one) {
    case act::claim: return "claim";
    case act::opening: return "opening";
    case act::answer: return "answer";
  }
  return "unknown";
}

const char* to_string(reason one) noexcept {
  switch (one) {
    case reason::agreement: return "agreement";
    case reason::silence: return "silence";
    case reason::garbage: return "garbage";
    case reason::other_run: return "other_run";
    case reason::other_parent: return "other_parent";
    case reason::other_place: return "other_place";
    case reason::contradiction: return "contradiction";
    case reason::commitment: return "commitment";
    case reason::opening: return "opening";
    case reason::structure: return "structure";
    case reason::value: return "value";
    case reason::referee: return "referee";
  }
  return "unknown";
}

std::optional<party> verdict::winner() const noexcept {
  if (wrong.trainer == wrong.auditor) return std::nullopt;
  return wrong.trainer ? party::auditor : party::trainer;
}

game::game(const game_rules& rules, std::uint64_t at) : run_(rules.run), turn_ms_(rules.turn_ms) {
  if (rules.steps == 0 || rules.steps > max_leaves) throw exception(refused("no such job"));
  if (turn_ms_ == 0 || turn_ms_ > last_time / 2 || at > last_time / 2) {
    throw exception(refused("a party needs time to move"));
  }
  bisection steps;
  steps.kind = level_kind::steps;
  steps.size = steps.high = rules.steps;
  steps.agreed = rules.initial;
  steps.claimed = rules.final_state;
  levels_.reserve(3);
  levels_.push_back(steps);
  made_.trainer.reserve(expected_moves);
  made_.auditor.reserve(expected_moves);
  if (rules.final_state.trainer == rules.final_state.auditor) {
    verdict_ = verdict{{}, reason::agreement};
    return;
  }
  bisect(at);
}

bool game::is_late(std::uint64_t at) const noexcept {
  return !verdict_ && turn_.who && at > turn_.deadline;
}

void game::expect(party who, std::uint64_t at) {
  turn_.who = who;
  turn_.deadline = at + turn_ms_;
}

/// The next claim, or the opening where there is nothing left to halve.
void game::bisect(std::uint64_t at) {
  const bisection& now = levels_.back();
  const std::uint64_t level = levels_.size() - 1;
  turn_.where = now.is_narrow() ? place{level, now.low, act::opening}
                                : place{level, now.middle(), act::claim};
  expect(party::trainer, at);
}

const game::done* game::before(party one, const place& where, const digest& parent) const noexcept {
  for (const done& move : made_.of(one)) {
    if (move.where == where && move.parent == parent) return &move;
  }
  return nullptr;
}

effect game::lose(party one, reason why) {
  verdict_ = verdict{{}, why};
  verdict_->wrong.of(one) = true;
  turn_.who.reset();
  return effect::taken;
}

effect game::play(party from, const move& one, const digest& head, std::uint64_t at,
                  std::optional<reason> flaw) {
  if (verdict_) return effect::ignored;
  const bool is_its_turn = turn_.who == from, is_this_run = one.run == run_;
  if (is_this_run && !(is_its_turn && one.where == turn_.where)) {
    // A network may deliver a message again, and late. What names another parent was said in
    // another dispute about the same commitments, where something else may have been true.
    if (const done* earlier = before(from, one.where, one.parent)) {
      return earlier->content == one.content ? effect::ignored : lose(from, reason::contradiction);
    }
  }
  if (!is_its_turn) return effect::ignored;
  if (!is_this_run) return lose(from, reason::other_run);
  if (one.parent != head) return lose(from, reason::other_parent);
  if (one.where != turn_.where) return lose(from, reason::other_place);
  if (flaw) return lose(from, *flaw);
  take(from, one, at);
  return effect::taken;
}

effect game::garbage(party from) {
  if (verdict_ || turn_.who != from) return effect::ignored;
  return lose(from, reason::garbage);
}

effect game::tick(std::uint64_t at) {
  return is_late(at) ? lose(*turn_.who, reason::silence) : effect::ignored;
}

effect game::restart(std::uint64_t at) {
  if (verdict_ || !turn_.who) return effect::ignored;
  turn_.deadline = at + turn_ms_;
  return effect::taken;
}

void game::take(party from, const move& one, std::uint64_t at) {
  // Written field by field where it stays: a copy would wait for the parts of what it copies.
  done& made = made_.of(from).emplace_back();
  made.where = one.where;
  made.parent = one.parent;
  made.content = one.content;
  if (from == party::trainer) {
    expect(party::auditor, at);
  } else {
    after_both(at);
  }
}

void game::after_both(std::uint64_t at) {
  if (turn_.where.what != act::claim) {
    turn_.who.reset();  // the referee looks at it
    return;
  }
  bisection& now = levels_.back();
  const digest &trainer = made_.trainer.back().content, &auditor = made_.auditor.back().content;
  if (trainer == auditor) {
    now.low = now.middle();
    now.agreed = trainer;
  } else {
    now.high = now.middle();
    now.claimed = {trainer, auditor};
  }
  bisect(at);
}

status game::next(level_kind kind, std::uint64_t size, const both<digest>& claimed,
                  std::uint64_t at) {
  if (!is_referees_turn()) return refused("it is not the referee's turn");
  const bool fits = kind == level_kind::operators ||
                    (kind == level_kind::chunks && levels_.back().kind == level_kind::operators);
  if (!fits) return refused("such a bisection does not lie in this one");
  if (size == 0 || size > max_leaves) return refused("a bisection needs leaves");
  if (claimed.trainer == claimed.auditor) return refused("the parties agree on what is inside");
  if (levels_.size() == max_levels) return refused("there are too many bisections");
  bisection inner;
  inner.kind = kind;
  inner.size = inner.high = size;
  inner.agreed = empty_root();
  inner.claimed = claimed;
  levels_.push_back(inner);
  bisect(at);
  return unit{};
}

status game::ask(std::uint64_t at) {
  if (!is_referees_turn()) return refused("it is not the referee's turn");
  bisection& now = levels_.back();
  if (now.asked) return refused("the referee has asked already");
  now.asked = true;
  turn_.where.what = act::answer;
  expect(party::trainer, at);
  return unit{};
}

status game::rule(const both<bool>& wrong, reason why) {
  const bool convicts = wrong.trainer || wrong.auditor;
  if (verdict_) return refused("the dispute is over");
  if (why == reason::referee) {
    if (convicts) return refused("the referee's failure convicts nobody");
  } else if (why == reason::opening || why == reason::structure || why == reason::value) {
    if (!convicts) return refused("a ruling convicts somebody");
    if (!is_referees_turn()) return refused("it is not the referee's turn");
  } else {
    return refused("the rules of the game decide that");
  }
  verdict_ = verdict{wrong, why};
  turn_.who.reset();
  return unit{};
}

}  // namespace potl::dispute

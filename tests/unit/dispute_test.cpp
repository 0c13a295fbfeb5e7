// SPDX-License-Identifier: Apache-2.0
// The rules of a dispute, one by one. dispute_games_test.cpp plays all games.
#include "catch.hpp"

#include <potl/crypto/hasher.hpp>
#include <potl/crypto/merkle.hpp>
#include <potl/dispute/game.hpp>

using namespace potl;
using namespace potl::dispute;

namespace {

constexpr std::uint64_t start = 1'000'000, turn_ms = 60'000;

digest named(const char* name) { return sha256_of(as_bytes_view(name)); }

const digest head = named("head");
const run_names run{named("job"), named("trainer"), named("auditor")};

game_rules rules_of(std::uint64_t steps) {
  return {run, steps, named("initial"), {named("final of one"), named("final of other")}, turn_ms};
}

game of(std::uint64_t steps) { return {rules_of(steps), start}; }

move expected_of(const game& now, const digest& content) {
  return {run, head, now.expected().where, content};
}

effect play(game& now, const char* content, std::uint64_t at = start) {
  return now.play(now.expected().who.value(), expected_of(now, named(content)), head, at);
}

verdict lost(party one, reason why) {
  verdict out{{}, why};
  out.wrong.of(one) = true;
  return out;
}

/// Both open what is left of a bisection with one leaf.
game opened(std::uint64_t steps = 1) {
  game out = of(steps);
  while (out.expected().where.what == act::claim) {
    play(out, "same");
    play(out, "same");
  }
  play(out, "opening of one");
  play(out, "opening of other");
  return out;
}

const both<digest> roots{named("root of one"), named("root of other")};

}  // namespace

TEST_CASE("who committed to the same final state has nothing to dispute") {
  game_rules rules = rules_of(5);
  rules.final_state.auditor = rules.final_state.trainer;
  const game now(rules, start);
  REQUIRE(now.decided() == verdict{{}, reason::agreement});
  REQUIRE(!now.decided()->winner());
  REQUIRE(!now.expected().who);
}

TEST_CASE("a dispute needs steps, and time") {
  game_rules rules = rules_of(0);
  REQUIRE_THROWS_AS(game(rules, start), exception);
  rules.steps = max_leaves + 1;
  REQUIRE_THROWS_AS(game(rules, start), exception);
  rules.steps = max_leaves;
  REQUIRE_NOTHROW(game(rules, start));
  rules.turn_ms = 0;
  REQUIRE_THROWS_AS(game(rules, start), exception);
  rules.turn_ms = std::uint64_t{1} << 53;
  REQUIRE_THROWS_AS(game(rules, start), exception);
}

TEST_CASE("the trainer claims first, then the auditor, in the middle of what is left") {
  game now = of(10);
  REQUIRE(now.expected().who == party::trainer);
  REQUIRE(now.expected().where == place{0, 5, act::claim});
  REQUIRE(play(now, "a") == effect::taken);
  REQUIRE(now.expected().who == party::auditor);
  REQUIRE(now.expected().where == place{0, 5, act::claim});
  REQUIRE(play(now, "b") == effect::taken);
  REQUIRE(now.bisections().back().high == 5);
  REQUIRE(now.bisections().back().claimed == both<digest>{named("a"), named("b")});
  REQUIRE(now.expected().where == place{0, 2, act::claim});
  play(now, "c");
  play(now, "c");
  REQUIRE(now.bisections().back().low == 2);
  REQUIRE(now.bisections().back().agreed == named("c"));
  REQUIRE(now.expected().where == place{0, 3, act::claim});
  REQUIRE(now.moves() == 4);
}

TEST_CASE("a leaf between two neighbours is opened by both, then the referee looks at it") {
  game now = of(1);
  REQUIRE(now.expected().where == place{0, 0, act::opening});
  play(now, "x");
  REQUIRE(!now.is_referees_turn());
  play(now, "y");
  REQUIRE(now.is_referees_turn());
  REQUIRE(!now.is_late(start + 1000 * turn_ms));
  REQUIRE(now.next(level_kind::operators, 8, roots, start));
  REQUIRE(now.expected().where == place{1, 4, act::claim});
  REQUIRE(now.bisections().back().agreed == empty_root());
}

TEST_CASE("a move is in time until its deadline, and not a second later") {
  for (const int after : {-1000, 0, 1, 1000}) {
    game now = of(4);
    const std::uint64_t at = start + turn_ms + static_cast<std::uint64_t>(after);
    CAPTURE(after);
    REQUIRE(now.is_late(at) == (after > 0));
    if (after <= 0) {
      REQUIRE(now.tick(at) == effect::ignored);
      REQUIRE(play(now, "a", at) == effect::taken);
      REQUIRE(now.expected().deadline == at + turn_ms);  // each move has a time of its own
    } else {
      REQUIRE(now.tick(at) == effect::taken);
      REQUIRE(now.decided() == lost(party::trainer, reason::silence));
    }
  }
}

TEST_CASE("the auditor's silence is the auditor's") {
  game now = of(4);
  play(now, "a");
  REQUIRE(now.tick(start + turn_ms + 1) == effect::taken);
  REQUIRE(now.decided() == lost(party::auditor, reason::silence));
  REQUIRE(now.decided()->winner() == party::trainer);
  REQUIRE(now.tick(start + 9 * turn_ms) == effect::ignored);
}

TEST_CASE("a referee that was away gives the whole time again") {
  game now = of(4);
  REQUIRE(now.restart(start + 5 * turn_ms) == effect::taken);
  REQUIRE(!now.is_late(start + 6 * turn_ms));
  REQUIRE(now.is_late(start + 6 * turn_ms + 1));
  game waiting = opened();
  REQUIRE(waiting.restart(start) == effect::ignored);
}

TEST_CASE("each wrong move loses for its own reason") {
  const auto played = [](const auto& change, std::optional<reason> flaw = {}) {
    game now = of(9);
    play(now, "a");
    play(now, "b");
    move one = expected_of(now, named("c"));
    change(one);
    REQUIRE(now.play(party::trainer, one, head, start, flaw) == effect::taken);
    return now.decided();
  };
  const auto loses = [](reason why) { return std::optional(lost(party::trainer, why)); };
  const digest other = named("other");
  REQUIRE(!played([](move&) {}));
  REQUIRE(played([&](move& one) { one.run.job = other; }) == loses(reason::other_run));
  REQUIRE(played([&](move& one) { one.run.trainer = other; }) == loses(reason::other_run));
  REQUIRE(played([&](move& one) { one.run.auditor = other; }) == loses(reason::other_run));
  REQUIRE(played([&](move& one) { one.parent = other; }) == loses(reason::other_parent));
  REQUIRE(played([](move& one) { one.where.level = 1; }) == loses(reason::other_place));
  REQUIRE(played([](move& one) { one.where.index = 3; }) == loses(reason::other_place));
  REQUIRE(played([](move& one) { one.where.what = act::opening; }) == loses(reason::other_place));
  REQUIRE(played([](move& one) { one.where.index = 4; }) == loses(reason::contradiction));
  REQUIRE(played([](move&) {}, reason::commitment) == loses(reason::commitment));
  REQUIRE(played([&](move& one) { one.parent = other; }, reason::commitment) ==
          loses(reason::other_parent));
}

TEST_CASE("garbage loses in the sender's turn, and is noise else") {
  game now = of(9);
  REQUIRE(now.garbage(party::auditor) == effect::ignored);
  REQUIRE(!now.decided());
  REQUIRE(now.garbage(party::trainer) == effect::taken);
  REQUIRE(now.decided() == lost(party::trainer, reason::garbage));
  REQUIRE(now.garbage(party::trainer) == effect::ignored);
}

TEST_CASE("what a network repeats changes nothing") {
  game now = of(9);
  const move first = expected_of(now, named("a"));
  play(now, "a");
  REQUIRE(now.play(party::trainer, first, head, start) == effect::ignored);
  const move second = expected_of(now, named("b"));
  play(now, "b");
  REQUIRE(now.play(party::trainer, first, named("later"), start) == effect::ignored);
  REQUIRE(now.play(party::auditor, second, named("later"), start) == effect::ignored);
  REQUIRE(now.expected().where == place{0, 2, act::claim});
  REQUIRE(!now.decided());
}

TEST_CASE("what comes out of turn changes nothing, unless it contradicts") {
  game now = of(9);
  REQUIRE(now.play(party::auditor, expected_of(now, named("a")), head, start) == effect::ignored);
  move one = expected_of(now, named("a"));
  play(now, "a");
  one.content = named("b");
  REQUIRE(now.play(party::trainer, one, head, start) == effect::taken);
  REQUIRE(now.decided() == lost(party::trainer, reason::contradiction));
}

TEST_CASE("a contradiction counts in the referee's turn too, and only within one dispute") {
  game now = of(1);
  move one = expected_of(now, named("x"));
  play(now, "x");
  play(now, "y");
  one.content = named("z");
  move elsewhere = one;
  elsewhere.run.job = named("other");
  REQUIRE(now.play(party::trainer, elsewhere, head, start) == effect::ignored);
  REQUIRE(now.play(party::trainer, one, head, start) == effect::taken);
  REQUIRE(now.decided() == lost(party::trainer, reason::contradiction));
}

TEST_CASE("what was said after another parent contradicts nothing") {
  game now = of(9);
  move said = expected_of(now, named("a"));
  play(now, "a");
  said.parent = named("another dispute's");
  said.content = named("b");
  REQUIRE(now.play(party::trainer, said, head, start) == effect::ignored);
  play(now, "b");
  // In its turn the sender has to answer what came last.
  REQUIRE(now.play(party::trainer, said, head, start) == effect::taken);
  REQUIRE(now.decided() == lost(party::trainer, reason::other_parent));
}

TEST_CASE("after the verdict nothing changes it") {
  game now = of(1);
  move said = expected_of(now, named("x"));
  play(now, "x");
  now.garbage(party::auditor);
  const verdict before = *now.decided();
  said.content = named("y");
  REQUIRE(now.play(party::trainer, said, head, start) == effect::ignored);
  REQUIRE(now.play(party::auditor, {run, head, {0, 0, act::opening}, head}, head, start) ==
          effect::ignored);
  REQUIRE(now.tick(start + 9 * turn_ms) == effect::ignored);
  REQUIRE(now.restart(start) == effect::ignored);
  REQUIRE(!now.rule({true, true}, reason::value));
  REQUIRE(!now.rule({}, reason::referee));
  REQUIRE(!now.ask(start));
  REQUIRE(!now.next(level_kind::operators, 8, roots, start));
  REQUIRE(now.decided() == before);
}

TEST_CASE("bisections lie inside each other in one order") {
  game now = opened();
  REQUIRE(!now.next(level_kind::steps, 8, roots, start));
  REQUIRE(!now.next(level_kind::chunks, 8, roots, start));
  REQUIRE(!now.next(level_kind::operators, 0, roots, start));
  REQUIRE(!now.next(level_kind::operators, max_leaves + 1, roots, start));
  REQUIRE(!now.next(level_kind::operators, 8, {named("a"), named("a")}, start));
  REQUIRE(now.is_referees_turn());
  REQUIRE(now.next(level_kind::operators, 1, roots, start));
  REQUIRE(!now.next(level_kind::operators, 1, roots, start));  // it is the trainer's turn
  play(now, "x");
  play(now, "y");
  REQUIRE(!now.next(level_kind::steps, 8, roots, start));
  REQUIRE(now.next(level_kind::chunks, 1, roots, start));
  play(now, "x");
  play(now, "y");
  REQUIRE(!now.next(level_kind::steps, 8, roots, start));
  REQUIRE(!now.next(level_kind::chunks, 8, roots, start));
  REQUIRE(now.next(level_kind::operators, 1, roots, start));  // parts of the sum in one element
  play(now, "x");
  play(now, "y");
  REQUIRE(now.rule({false, true}, reason::value));
  REQUIRE(now.decided() == lost(party::auditor, reason::value));
}

TEST_CASE("bisections inside each other have an end") {
  game now = opened();
  for (std::size_t level = 1; level < max_levels; ++level) {
    REQUIRE(now.next(level_kind::operators, 1, roots, start));
    play(now, "x");
    play(now, "y");
  }
  REQUIRE(!now.next(level_kind::operators, 1, roots, start));
}

TEST_CASE("the referee asks both once for each bisection") {
  game now = opened();
  REQUIRE(now.ask(start));
  REQUIRE(now.expected().where == place{0, 0, act::answer});
  REQUIRE(now.expected().who == party::trainer);
  REQUIRE(!now.ask(start));
  play(now, "x");
  play(now, "y");
  REQUIRE(now.is_referees_turn());
  REQUIRE(!now.ask(start));
  REQUIRE(now.next(level_kind::operators, 1, roots, start));
  play(now, "x");
  play(now, "y");
  REQUIRE(now.ask(start));
  REQUIRE(now.expected().deadline == start + turn_ms);
}

TEST_CASE("a ruling convicts somebody, in the referee's turn, for a reason of its own") {
  for (const reason why : {reason::opening, reason::structure, reason::value}) {
    game now = of(1);
    REQUIRE(!now.rule({true, false}, why));
    now = opened();
    REQUIRE(!now.rule({}, why));
    REQUIRE(now.rule({true, true}, why));
    REQUIRE(now.decided() == verdict{{true, true}, why});
    REQUIRE(!now.decided()->winner());
  }
  for (const reason why :
       {reason::agreement, reason::silence, reason::garbage, reason::other_run,
        reason::other_parent, reason::other_place, reason::contradiction, reason::commitment}) {
    game now = opened();
    REQUIRE(!now.rule({true, false}, why));
    REQUIRE(!now.decided());
  }
}

TEST_CASE("a referee that cannot decide says so at any time, and convicts nobody") {
  game now = of(9);
  REQUIRE(!now.rule({true, false}, reason::referee));
  REQUIRE(now.rule({}, reason::referee));
  REQUIRE(now.decided() == verdict{{}, reason::referee});
}

TEST_CASE("reasons have names") {
  REQUIRE(std::string(to_string(reason::other_parent)) == "other_parent");
  REQUIRE(std::string(to_string(act::opening)) == "opening");
  REQUIRE(std::string(to_string(level_kind::chunks)) == "chunks");
  REQUIRE(std::string(to_string(other(party::trainer))) == "auditor");
}

// SPDX-License-Identifier: Apache-2.0
// All games: every reply of six kinds at every turn of every dispute of a depth, by either party or
// by both. Expected outcomes are computed beside the game, and their number from a formula.
#include "catch.hpp"

#include <bit>
#include <cstdio>
#include <set>
#include <vector>

#include <potl/crypto/merkle.hpp>
#include <potl/dispute/game.hpp>

using namespace potl;
using namespace potl::dispute;

namespace {

constexpr std::uint64_t start = 1'000'000, turn_ms = 60'000;

/// What a reply is. The last four end the dispute at once.
enum class reply { honest, lie, silence, garbage, contradiction, other_run };
constexpr reply all_replies[] = {reply::honest,  reply::lie,           reply::silence,
                                 reply::garbage, reply::contradiction, reply::other_run};

/// A digest that says what it stands for: 0 what is true, 1 the trainer's lie, 2 the auditor's.
digest content(std::uint8_t who, const place& where) {
  digest out;
  out.bytes[0] = static_cast<std::uint8_t>(who + 1);
  out.bytes[1] = static_cast<std::uint8_t>(where.level + 1);
  out.bytes[2] = static_cast<std::uint8_t>(where.what);
  for (std::size_t i = 0; i < 8; ++i) {
    out.bytes[8 + i] = static_cast<std::uint8_t>(where.index >> (8 * i));
  }
  return out;
}

std::uint8_t lie_of(party one) { return one == party::trainer ? 1 : 2; }

digest said(party one, bool truly, const place& where) {
  return content(truly ? 0 : lie_of(one), where);
}

const run_names run{content(0, {1, 1, act::claim}), content(0, {2, 2, act::claim}),
                    content(0, {3, 3, act::claim})};
const digest head = content(0, {4, 4, act::claim});

struct world {
  std::vector<std::uint64_t> depths;  ///< a bisection over 2^depth leaves each
  both<bool> free;                    ///< who may reply with anything; else it is honest
  std::uint64_t games = 0;
  std::set<std::uint64_t> found;  ///< leaves of the first bisection that were found

  level_kind kind_of(std::size_t level) const {
    if (level == 0) return level_kind::steps;
    return level + 1 == depths.size() && level > 1 ? level_kind::chunks : level_kind::operators;
  }
};

/// What should be the case, kept by other means than the game's.
struct position {
  std::size_t level = 0;
  std::uint64_t low = 0, high = 0;
  both<bool> truly;       ///< whether the claims at `high` are true
  both<bool> said_truly;  ///< the replies of this round
  act what = act::claim;
  bool is_auditors = false;
  std::uint64_t moves = 0;
};

void play_on(world& in, const game& now, position at);

void require(bool holds, const char* what) {
  if (!holds) FAIL(what);  // REQUIRE takes longer than the game
}

std::uint64_t most_moves(const world& in) {
  std::uint64_t out = 2;  // answers
  for (const std::uint64_t depth : in.depths) out += 2 * depth + 2;
  return out;
}

void ends(world& in, const game& now, const position& at, const verdict& expected) {
  ++in.games;
  require(now.decided() == expected, "the verdict is another one");
  for (const party one : {party::trainer, party::auditor}) {
    require(in.free.of(one) || !now.decided()->wrong.of(one), "an honest party was convicted");
  }
  require(now.moves() == at.moves && at.moves <= most_moves(in), "another number of moves");
}

void loses(world& in, const game& now, const position& at, party one, reason why) {
  verdict expected{{}, why};
  expected.wrong.of(one) = true;
  ends(in, now, at, expected);
}

/// The claims of a new bisection at its end.
position inside(const world& in, position at, std::size_t level) {
  at.level = level;
  at.low = 0;
  at.high = std::uint64_t{1} << in.depths[level];
  at.what = at.high == 1 ? act::opening : act::claim;
  return at;
}

/// Both have opened or answered, and what they gave may not fit.
void referee_decides(world& in, game now, position at) {
  const both<bool> misfit{at.said_truly.trainer != (at.what == act::answer || at.truly.trainer),
                          at.said_truly.auditor != (at.what == act::answer || at.truly.auditor)};
  require(now.is_referees_turn(), "it is the referee's turn");
  if (misfit.trainer || misfit.auditor) {
    require(now.rule(misfit, reason::opening).has_value(), "a ruling is taken");
    return ends(in, now, at, {misfit, reason::opening});
  }
  if (at.what == act::answer) {
    const both<bool> wrong{!at.truly.trainer, !at.truly.auditor};
    require(now.rule(wrong, reason::value).has_value(), "a ruling is taken");
    return ends(in, now, at, {wrong, reason::value});
  }
  if (at.level == 0) in.found.insert(at.low);
  if (at.level + 1 == in.depths.size()) {
    require(now.ask(start).has_value(), "a question is taken");
    at.what = act::answer;
    return play_on(in, now, at);
  }
  const std::uint64_t size = std::uint64_t{1} << in.depths[at.level + 1];
  const place end{at.level + 1, size, act::claim};
  const both<digest> claimed{said(party::trainer, at.truly.trainer, end),
                             said(party::auditor, at.truly.auditor, end)};
  require(now.next(in.kind_of(at.level + 1), size, claimed, start).has_value(), "goes inside");
  play_on(in, now, inside(in, at, at.level + 1));
}

void after_claims(world& in, const game& now, position at) {
  const std::uint64_t middle = at.low + (at.high - at.low) / 2;
  if (at.said_truly.trainer && at.said_truly.auditor) {
    at.low = middle;
  } else {
    at.high = middle;
    at.truly = at.said_truly;
  }
  if (at.high - at.low == 1) at.what = act::opening;
  play_on(in, now, at);
}

/// One reply of a party, and everything after it.
void reply_with(world& in, game now, position at, party one, reply with) {
  const std::uint64_t middle = at.low + (at.high - at.low) / 2;
  const place where{at.level, at.what == act::claim ? middle : at.low, at.what};
  require(now.expected().who == one && now.expected().where == where, "another turn");
  const bool is_opening = at.what == act::opening;
  const auto send = [&](bool truly, std::optional<reason> flaw = {}) {
    return now.play(one, {run, head, where, said(one, truly, where)}, head, start, flaw);
  };
  switch (with) {
    case reply::silence:
      require(now.tick(start + turn_ms) == effect::ignored, "there is time left");
      require(now.tick(start + turn_ms + 1) == effect::taken, "time is over");
      return loses(in, now, at, one, reason::silence);
    case reply::garbage:
      require(now.garbage(one) == effect::taken, "garbage counts");
      return loses(in, now, at, one, reason::garbage);
    case reply::other_run: {
      move elsewhere{run, head, where, said(one, true, where)};
      elsewhere.run.job = head;
      require(now.play(one, elsewhere, head, start) == effect::taken, "another run counts");
      return loses(in, now, at, one, reason::other_run);
    }
    case reply::contradiction: {
      const bool fitting = !is_opening || at.truly.of(one);
      require(send(fitting) == effect::taken, "the first of two is taken");
      require(send(!fitting) == effect::taken, "the second of two counts");
      ++at.moves;
      return loses(in, now, at, one, reason::contradiction);
    }
    default: break;
  }
  const bool truly = with == reply::honest;
  // Between steps only the referee can tell.
  if (is_opening && at.level != 0 && truly != at.truly.of(one)) {
    require(send(truly, reason::opening) == effect::taken, "a misfit counts");
    return loses(in, now, at, one, reason::opening);
  }
  require(send(truly) == effect::taken, "a move is taken");
  require(send(truly) == effect::ignored, "a move is taken once");
  at.said_truly.of(one) = truly;
  ++at.moves;
  at.is_auditors = one == party::trainer;
  if (at.is_auditors) return play_on(in, now, at);
  at.what == act::claim ? after_claims(in, now, at) : referee_decides(in, now, at);
}

void play_on(world& in, const game& now, position at) {
  const party one = at.is_auditors ? party::auditor : party::trainer;
  if (in.free.of(one)) {
    for (const reply with : all_replies) reply_with(in, now, at, one, with);
    return;
  }
  // The honest one opens what it claimed, which is true wherever the other one's is not.
  require(at.truly.of(one), "the honest claim at the end is true");
  reply_with(in, now, at, one, reply::honest);
}

std::uint64_t play_all(world& in) {
  position at = inside(in, {}, 0);
  at.truly = {!in.free.trainer, !in.free.auditor};
  const place end{0, at.high, act::claim};
  const game_rules rules{
      run,
      at.high,
      content(0, {0, 0, act::claim}),
      {said(party::trainer, at.truly.trainer, end), said(party::auditor, at.truly.auditor, end)},
      turn_ms};
  const game now(rules, start);
  if (!in.free.trainer && !in.free.auditor) {
    ends(in, now, at, {{}, reason::agreement});
  } else {
    play_on(in, now, at);
  }
  return in.games;
}

std::uint64_t power(std::uint64_t base, std::uint64_t exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

/// How many games there are. `ways`: how many rounds of claims go on; 2 if one party is free, 4 if
/// both are. Each free party has four replies that end the game at once.
std::uint64_t expected_games(const world& in) {
  const bool is_one = in.free.trainer != in.free.auditor;
  if (!in.free.trainer && !in.free.auditor) return 1;
  const std::uint64_t ways = is_one ? 2 : 4;
  const std::uint64_t ended = is_one ? 4 : 4 + 2 * 4;           // of a round of claims
  const std::uint64_t judged = is_one ? 4 + 1 : 4 + 2 * 4 + 3;  // the referee sees what fits
  const std::uint64_t seen = is_one ? 4 + 1 : 5 + 5;            // seen when it comes
  std::uint64_t out = 0, open = 1;
  for (std::size_t level = 0; level < in.depths.size(); ++level) {
    const std::uint64_t ends = power(ways, in.depths[level]);
    out += open * (ended * (ends - 1) / (ways - 1) + ends * (level == 0 ? judged : seen));
    open *= ends;
  }
  return out + open * (judged + 1);
}

/// All depths of one to three bisections that are together at most `depth`.
std::vector<std::vector<std::uint64_t>> shapes(std::uint64_t depth) {
  std::vector<std::vector<std::uint64_t>> out;
  for (std::uint64_t a = 0; a <= depth; ++a) {
    out.push_back({a});
    for (std::uint64_t b = 0; a + b <= depth; ++b) {
      out.push_back({a, b});
      for (std::uint64_t c = 0; a + b + c <= depth; ++c) out.push_back({a, b, c});
    }
  }
  return out;
}

void play_to_depth(std::uint64_t depth) {
  std::uint64_t games = 0, expected = 0;
  for (const auto& depths : shapes(depth)) {
    for (const both<bool> free :
         {both<bool>{false, false}, {true, false}, {false, true}, {true, true}}) {
      world in{depths, free, 0, {}};
      games += play_all(in);
      expected += expected_games(in);
      REQUIRE(in.games == expected_games(in));
      // Every step was once the first that is wrong.
      const bool is_any = free.trainer || free.auditor;
      REQUIRE(in.found.size() == (is_any ? std::uint64_t{1} << depths[0] : 0));
    }
  }
  std::printf("disputes to depth %d: %llu games, expected %llu\n", static_cast<int>(depth),
              static_cast<unsigned long long>(games), static_cast<unsigned long long>(expected));
  REQUIRE(games == expected);
}

}  // namespace

TEST_CASE("in every game to depth 6 the right party wins") { play_to_depth(6); }

TEST_CASE("in every game to depth 7 the right party wins", "[.][dispute_all]") { play_to_depth(7); }

TEST_CASE("the first wrong step is found, whatever their number") {
  for (std::uint64_t steps = 1; steps <= 130; ++steps) {
    for (std::uint64_t wrong = 1; wrong <= steps; ++wrong) {
      for (const party liar : {party::trainer, party::auditor}) {
        const auto claimed = [&](party one, std::uint64_t step) {
          return said(one, one != liar || step < wrong, {0, step, act::claim});
        };
        game now({run,
                  steps,
                  content(0, {0, 0, act::claim}),
                  {claimed(party::trainer, steps), claimed(party::auditor, steps)},
                  turn_ms},
                 start);
        while (now.expected().where.what == act::claim) {
          const party one = now.expected().who.value();
          const place where = now.expected().where;
          now.play(one, {run, head, where, claimed(one, where.index)}, head, start);
        }
        require(now.expected().where.index + 1 == wrong, "another step was found");
        require(now.moves() <= 2 * static_cast<std::uint64_t>(std::bit_width(steps - 1)),
                "too many moves");
      }
    }
  }
}

// SPDX-License-Identifier: Apache-2.0
// Disputes with signed messages, from end to end, through what networks and crashes do to them.
#include "catch.hpp"

#include <bit>
#include <cstdlib>
#include <string>
#include <vector>

#include "dispute_fixture.hpp"

using namespace potl;
using namespace potl::dispute;

namespace {

const sizes small{3, 2, 40};

std::uint64_t rounds(std::uint64_t leaves) {
  return static_cast<std::uint64_t>(std::bit_width(leaves - 1));
}

std::string played(const dispute_of& about) {
  table at(about);
  at.play();
  return at.judge.transcript();
}

}  // namespace

TEST_CASE("whoever is wrong loses, wherever the first wrong chunk is") {
  const sizes size;
  for (std::uint64_t step = 1; step <= size.steps; step += 2) {
    for (std::uint64_t where = 0; where + 1 < size.operators; ++where) {
      for (std::uint64_t chunk = 0; chunk < 3; ++chunk) {
        for (const party liar : {party::trainer, party::auditor}) {
          const fault wrong{step, where, chunk};
          both<std::optional<fault>> faults;
          faults.of(liar) = wrong;
          const dispute_of about(size, faults.trainer, faults.auditor);
          table at(about);
          at.play();
          REQUIRE(at.decided()->winner() == other(liar));
          REQUIRE(at.decided()->why == reason::value);
          const auto& levels = at.judge.now().state().bisections();
          REQUIRE(at.judge.now().step() == step);
          REQUIRE(levels[1].low == where);
          REQUIRE(levels[2].low == chunk);
          const std::uint64_t most =
              2 * (rounds(size.steps) + rounds(size.operators) + rounds(3)) + 3 * 2 + 2;
          REQUIRE(at.judge.now().state().moves() <= most);
          for (const player& one : at.players) REQUIRE(one.now().state().decided() == at.decided());
          const judged again =
              judge_again(about.known, at.judge.transcript(), about.again()).value();
          REQUIRE(again.outcome == *at.decided());
          REQUIRE(again.believed == 0);
          REQUIRE(again.step == step);
          REQUIRE(judge_again(about.known, at.judge.transcript()).value().believed == 4);
        }
      }
    }
  }
}

TEST_CASE("two that are wrong in the same place both lose") {
  const dispute_of about(small, fault{2, 0, 0}, fault{2, 0, 0});
  const judged out = judge_again(about.known, played(about), about.again()).value();
  REQUIRE(out.outcome == verdict{{true, true}, reason::value});
}

TEST_CASE("two that are wrong: whoever is wrong earlier loses") {
  const dispute_of about(small, fault{3, 0, 0}, fault{2, 0, 0});
  const judged out = judge_again(about.known, played(about), about.again()).value();
  REQUIRE(out.outcome.winner() == party::trainer);
  REQUIRE(out.step == 2);
}

namespace {

enum class trick { another_content, silence, garbage, contradiction, other_run };

/// The dispute when the liar plays such a trick in its turn number `when`; nothing when it has not
/// so many turns.
std::optional<verdict> tricked(const dispute_of& about, party liar, int when, trick what) {
  table at(about);
  std::uint64_t now = opened_at;
  int turns = 0;
  while (!at.decided()) {
    ++now;
    at.step(now, [&](party from, std::string text) {
      const auto send = [&](const message& one) {
        text = sign_message(one, key_of(to_string(from)));
        return at.judge.receive(from, as_bytes_view(text), now).has_value();
      };
      message one = parse_message(as_bytes_view(text), text.size()).value();
      if (from != liar || turns++ != when) {
        REQUIRE(send(one));
        return;
      }
      if (what == trick::silence) {
        now += turn_ms + 1;
        REQUIRE(at.judge.tick(now));
        return;
      }
      if (what == trick::garbage) {
        REQUIRE(at.judge.receive(from, as_bytes_view("{}"), now));
        return;
      }
      if (what == trick::other_run) one.run.job = digest_of("other");
      if (what == trick::contradiction) REQUIRE(send(one));
      if (what == trick::contradiction || what == trick::another_content) {
        if (auto* claimed = std::get_if<claim>(&one.content)) claimed->value = digest_of("lie");
        if (auto* shown = std::get_if<opening>(&one.content)) shown->leaf[0] ^= 1;
        if (auto* given = std::get_if<answer>(&one.content)) given->bytes = bytes_of("lie");
      }
      REQUIRE(send(one));
    });
  }
  if (turns <= when) return std::nullopt;
  REQUIRE(at.decided()->winner() == other(liar));
  const judged again = judge_again(about.known, at.judge.transcript()).value();
  REQUIRE(again.outcome == *at.decided());
  return at.decided();
}

}  // namespace

TEST_CASE("whatever a liar does in any turn, the honest party wins") {
  const sizes size{4, 3, content_chunk_bytes + 1};
  for (const party liar : {party::trainer, party::auditor}) {
    both<std::optional<fault>> faults;
    faults.of(liar) = fault{3, 1, 1};
    const dispute_of about(size, faults.trainer, faults.auditor);
    const auto why = [&](int when, trick what) {
      const auto out = tricked(about, liar, when, what);
      return out ? std::optional(out->why) : std::nullopt;
    };
    int turns = 0;
    for (; why(turns, trick::silence); ++turns) {
      CAPTURE(liar == party::trainer, turns);
      REQUIRE(why(turns, trick::silence) == reason::silence);
      REQUIRE(why(turns, trick::garbage) == reason::garbage);
      REQUIRE(why(turns, trick::contradiction) == reason::contradiction);
      REQUIRE(why(turns, trick::other_run) == reason::other_run);
      REQUIRE(why(turns, trick::another_content));
    }
    REQUIRE(turns == 2 + 2 + 1 + 3 + 1);  // claims, openings, an answer
  }
}

TEST_CASE("equal runs are no dispute") {
  const dispute_of about(small, {}, {});
  const table at(about);
  REQUIRE(at.decided() == verdict{{}, reason::agreement});
  REQUIRE(judge_again(about.known, at.judge.transcript()).value().outcome == *at.decided());
}

TEST_CASE("a recomputation that finds something else is heard") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  const std::string text = played(about);
  std::size_t seen = 0;
  const recomputation refuses = [&](const proceedings& before, const decision& made) -> status {
    REQUIRE(before.state().is_referees_turn());
    ++seen;
    if (!std::holds_alternative<ruling>(made)) return unit{};
    return error{errc::mismatch, "another value", ""};
  };
  REQUIRE(judge_again(about.known, text, refuses).why().message == "another value");
  REQUIRE(seen == 4);
}

TEST_CASE("a transcript that is cut off has no verdict") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  const std::string text = played(about);
  REQUIRE(judge_again(about.known, "").why().code == errc::missing);
  std::string shorter;
  for (const std::string& line : lines_of(text)) {
    if (!shorter.empty()) REQUIRE(judge_again(about.known, shorter).why().code == errc::missing);
    shorter += line;
    REQUIRE(judge_again(about.known, shorter).why().code == errc::malformed);
    shorter += "\n";
  }
  REQUIRE(judge_again(about.known, text));
  REQUIRE(judge_again(about.known, text + "\n").why().code == errc::malformed);
  REQUIRE(judge_again(about.known, text + lines_of(text).back() + "\n").why().code ==
          errc::mismatch);
}

TEST_CASE("a transcript without one of its lines, or with two changed over, is refused") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  const auto lines = lines_of(played(about));
  for (std::size_t out = 0; out < lines.size(); ++out) {
    std::string left, swapped;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i != out) left += lines[i] + "\n";
      const std::size_t from = i == out ? i + 1 : i == out + 1 ? out : i;
      if (from < lines.size()) swapped += lines[from] + "\n";
    }
    REQUIRE(!judge_again(about.known, left));
    REQUIRE(!judge_again(about.known, swapped));
  }
}

TEST_CASE("what the referee signed elsewhere, or for nothing, is no line of this transcript") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  table at(about);
  const std::string first = lines_of(at.judge.transcript()).front();
  const std::string text = at.players[0].next_message().value();
  const byte_vector sent(text.begin(), text.end());
  const auto taken = [&](const entry& one) {
    proceedings now = proceedings::begin(about.known, first).value();
    return now.append(sign_entry(one, key_of("referee"))).has_value();
  };
  const std::uint64_t in_time = opened_at + turn_ms, late = in_time + 1;
  const digest head = at.judge.now().head();
  const std::size_t most = at.judge.now().message_bytes();
  REQUIRE(taken({in_time, head, received{party::trainer, sent}, {}}));
  REQUIRE(!taken({in_time, {}, received{party::trainer, sent}, {}}));
  REQUIRE(!taken({opened_at - 1, head, received{party::trainer, sent}, {}}));
  REQUIRE(!taken({late, head, received{party::trainer, sent}, {}}));
  REQUIRE(!taken({in_time, head, received{party::auditor, sent}, {}}));
  REQUIRE(taken({late, head, silence{}, {}}));
  REQUIRE(!taken({in_time, head, silence{}, {}}));
  REQUIRE(taken({late, head, restarted{}, {}}));
  REQUIRE(taken({in_time, head, received{party::trainer, byte_vector(most)}, {}}));
  REQUIRE(!taken({in_time, head, received{party::trainer, byte_vector(most + 1)}, {}}));
  REQUIRE(taken({in_time, head, oversized{party::trainer, most + 1}, {}}));
  REQUIRE(!taken({in_time, head, oversized{party::trainer, most}, {}}));
  REQUIRE(!taken({in_time, head, oversized{party::auditor, most + 1}, {}}));
  REQUIRE(!taken({in_time, head, about.agreed(), {}}));
  const auto begins = [&](const entry& one) {
    return proceedings::begin(about.known, sign_entry(one, key_of("referee"))).has_value();
  };
  REQUIRE(begins({opened_at, {}, about.agreed(), {}}));
  REQUIRE(!begins({opened_at, head, about.agreed(), {}}));
  REQUIRE(!begins({opened_at, {}, silence{}, {}}));
}

TEST_CASE("each line is the referee's, the first one and those behind it") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  const entry first{opened_at, {}, about.agreed(), {}};
  proceedings now = proceedings::begin(about.known, sign_entry(first, key_of("referee"))).value();
  const entry next{opened_at + turn_ms + 1, now.head(), silence{}, {}};
  for (const char* other : {"trainer", "auditor", "stranger"}) {
    REQUIRE(!proceedings::begin(about.known, sign_entry(first, key_of(other))));
    REQUIRE(!now.append(sign_entry(next, key_of(other))));
  }
  REQUIRE(now.append(sign_entry(next, key_of("referee"))));
}

TEST_CASE("keys, job and commitments are those that are known") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  const std::string text = played(about);
  const auto judged_with = [&](auto change) {
    setting other = about.known;
    change(other);
    const auto out = judge_again(other, text);
    return out.has_value() ? errc::internal : out.why().code;
  };
  const public_key stranger = key_of("stranger").verifier();
  REQUIRE(judged_with([&](setting& one) { one.trainer = stranger; }) == errc::mismatch);
  REQUIRE(judged_with([&](setting& one) { one.auditor = stranger; }) == errc::mismatch);
  REQUIRE(judged_with([&](setting& one) { one.referee = stranger; }) == errc::mismatch);
  REQUIRE(judged_with([](setting& one) { one.job = digest_of("other"); }) == errc::mismatch);
  REQUIRE(judged_with([](setting& one) { one.steps = 0; }) == errc::mismatch);
  const auto opened = [&](auto change) {
    terms agreed = about.agreed();
    change(agreed);
    return referee::open(about.known, agreed, key_of("referee"), opened_at).has_value();
  };
  REQUIRE(opened([](terms&) {}));
  REQUIRE(!opened([](terms& one) { one.job = digest_of("other"); }));
  REQUIRE(!opened([](terms& one) { one.turn_ms = 0; }));
  REQUIRE(!opened([](terms& one) { std::swap(one.commitments.trainer, one.commitments.auditor); }));
  const auto note = [](const digest& job, std::optional<digest> final_state) {
    return transcript::sign_run_note(job, 3, digest_of("r"), final_state, key_of("trainer"))
        .value();
  };
  REQUIRE(opened([&](terms& one) { one.commitments.trainer = note(job_id, digest_of("x")); }));
  REQUIRE(!opened([&](terms& one) { one.commitments.trainer = note(job_id, {}); }));
  REQUIRE(
      !opened([&](terms& one) { one.commitments.trainer = note(digest_of("j"), digest_of("x")); }));
  REQUIRE(referee::open(about.known, about.agreed(), key_of("stranger"), opened_at).why().code ==
          errc::usage);
  const std::string first = lines_of(text).front();
  REQUIRE(player::join(about.known, party::trainer, key_of("auditor"), {}, first).why().code ==
          errc::usage);
}

TEST_CASE("messages that are repeated, late by a line, or lost change no verdict") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  const std::string calm = played(about);
  std::vector<std::pair<party, std::string>> sent;
  table at(about);
  std::uint64_t now = opened_at;
  while (!at.decided()) {
    ++now;
    at.step(now, [&](party from, const std::string& text) {
      sent.emplace_back(from, text);
      // Whatever was sent before comes again, in any order; then twice what is new.
      for (auto old = sent.rbegin() + 1; old != sent.rend(); ++old) {
        REQUIRE(!at.judge.receive(old->first, as_bytes_view(old->second), now));
      }
      REQUIRE(at.judge.receive(from, as_bytes_view(text), now));
      REQUIRE(!at.judge.receive(from, as_bytes_view(text), now));
      // The party itself does not move twice, however often it is asked.
      REQUIRE(!at.players[static_cast<std::size_t>(from)].next_message());
    });
    at.spread();
    for (const std::string& line : lines_of(at.judge.transcript())) {
      for (player& one : at.players) REQUIRE(one.follow(line));
    }
  }
  REQUIRE(at.judge.transcript() == calm);
}

TEST_CASE("each may crash at every message, and the verdict stays") {
  const dispute_of about(small, {}, fault{2, 0, 0});
  const auto lines = lines_of(played(about));
  for (std::size_t killed = 1; killed < lines.size(); ++killed) {
    CAPTURE(killed);
    std::string stored;
    for (std::size_t i = 0; i < killed; ++i) stored += lines[i] + "\n";
    // The referee died in the middle of a line, an hour before anybody looked.
    const std::uint64_t at = opened_at + 3'600'000;
    table again(about);
    again.judge =
        referee::resume(about.known, stored + lines[killed].substr(0, 20), key_of("referee"), at)
            .value();
    const auto& expected = again.judge.now().state().expected();
    std::string in_flight;
    if (expected.who) {
      // It was written before the crash, and the sender died with it.
      player sender = about.join(*expected.who, again.judge);
      for (std::size_t i = 1; i < killed; ++i) REQUIRE(sender.follow(lines[i]));
      in_flight = sender.next_message().value();
      REQUIRE(again.judge.receive(*expected.who, as_bytes_view(in_flight), at + turn_ms));
    }
    again.sent = lines[0].size() + 1;
    std::uint64_t now = at + turn_ms;
    while (!again.decided()) {
      ++now;
      again.step(now, [&](party from, const std::string& text) {
        again.judge.receive(from, as_bytes_view(text), now);
      });
    }
    REQUIRE(again.decided()->winner() == party::trainer);
    REQUIRE(judge_again(about.known, again.judge.transcript(), about.again()).value().outcome ==
            *again.decided());
  }
}

TEST_CASE("a message at the deadline is in time, a second later it is silence") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  for (const int after : {-1000, 0, 1, 1000}) {
    for (const bool is_only_clock : {false, true}) {
      CAPTURE(after, is_only_clock);
      table at(about);
      at.spread();
      const std::string text = at.players[0].next_message().value();
      const std::uint64_t now = opened_at + turn_ms + static_cast<std::uint64_t>(after);
      const new_line line = is_only_clock
                                ? at.judge.tick(now)
                                : at.judge.receive(party::trainer, as_bytes_view(text), now);
      REQUIRE(line.has_value() == (after > 0 || !is_only_clock));
      REQUIRE(at.decided().has_value() == (after > 0));
      if (after > 0) {
        REQUIRE(at.decided() == verdict{{true, false}, reason::silence});
        REQUIRE(judge_again(about.known, at.judge.transcript()).value().outcome == *at.decided());
      }
    }
  }
}

TEST_CASE("a referee's clock that goes back is taken for one that stands") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  table at(about);
  const std::string text = at.players[0].next_message().value();
  REQUIRE(at.judge.receive(party::trainer, as_bytes_view(text), opened_at - 500));
  REQUIRE(at.judge.now().last_at() == opened_at);
}

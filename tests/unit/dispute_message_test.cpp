// SPDX-License-Identifier: Apache-2.0
// What a party may send, and what it loses by.
#include "catch.hpp"

#include <functional>
#include <string>

#include <potl/encoding/json.hpp>

#include "dispute_fixture.hpp"

using namespace potl;
using namespace potl::dispute;

namespace {

const sizes small{3, 2, 40};

/// The dispute as soon as the trainer is expected to make such a move in such a bisection.
table waiting(const dispute_of& about, level_kind kind, act what) {
  table at(about);
  std::uint64_t now = opened_at;
  while (true) {
    at.spread();
    const game& state = at.judge.now().state();
    if (state.expected().who == party::trainer && state.bisections().back().kind == kind &&
        state.expected().where.what == what) {
      return at;
    }
    ++now;
    at.step(now, [&](party from, const std::string& text) {
      at.judge.receive(from, as_bytes_view(text), now);
    });
  }
}

message expected_of(table& at) {
  const std::string text = at.players[0].next_message().value();
  return parse_message(as_bytes_view(text), text.size()).value();
}

/// The verdict after the trainer sends its expected message with a change.
std::optional<verdict> after(const sizes& size, level_kind kind, act what,
                             const std::function<void(message&)>& change) {
  const dispute_of about(size, fault{2, 0, 0}, {});
  table at = waiting(about, kind, what);
  message one = expected_of(at);
  change(one);
  const std::string text = sign_message(one, key_of("trainer"));
  REQUIRE(at.judge.receive(party::trainer, as_bytes_view(text), opened_at + 500));
  const auto out = at.decided();
  if (out)
    REQUIRE(judge_again(about.known, at.judge.transcript(), about.again()).value().outcome == *out);
  return out;
}

std::optional<verdict> lost(reason why) { return verdict{{true, false}, why}; }

}  // namespace

TEST_CASE("a message has one spelling") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  for (const auto& [kind, what] :
       {std::pair(level_kind::steps, act::claim), std::pair(level_kind::steps, act::opening),
        std::pair(level_kind::operators, act::claim), std::pair(level_kind::chunks, act::answer)}) {
    table at = waiting(about, kind, what);
    const std::string text = at.players[0].next_message().value();
    const message read = parse_message(as_bytes_view(text), text.size()).value();
    REQUIRE(read.where().what == what);
    REQUIRE(read.is_from(key_of("trainer").verifier()));
    REQUIRE(!read.is_from(key_of("auditor").verifier()));
    REQUIRE(format_message(read) == text);
    REQUIRE(sign_message(read, key_of("trainer")) == text);
    REQUIRE(!parse_message(as_bytes_view(text), text.size() - 1));
    REQUIRE(!parse_message(as_bytes_view(text + " "), 1000000));
    const json_value whole = parse_json(as_bytes_view(text)).value();
    for (const json_member& member : *whole.if_object()) {
      json_value::object left;
      for (const json_member& one : *whole.if_object()) {
        if (one.name != member.name) left.push_back(one);
      }
      const std::string without = canonical_json(json_value::from_members(left).value());
      REQUIRE(!parse_message(as_bytes_view(without), 1000000));
      json_value other = whole;
      other.set(member.name, nullptr);
      REQUIRE(!parse_message(as_bytes_view(canonical_json(other)), 1000000));
    }
    json_value more = whole;
    more.set("more", 1);
    REQUIRE(!parse_message(as_bytes_view(canonical_json(more)), 1000000));
    json_value other = whole;
    other.set("format", "potl-dispute-message-v2");
    REQUIRE(!parse_message(as_bytes_view(canonical_json(other)), 1000000));
  }
}

TEST_CASE("a message that belongs elsewhere loses for that reason") {
  const auto claimed = [](const std::function<void(message&)>& change) {
    return after(small, level_kind::steps, act::claim, change);
  };
  REQUIRE(!claimed([](message&) {}));
  REQUIRE(claimed([](message& one) { one.run.job = digest_of("other"); }) ==
          lost(reason::other_run));
  REQUIRE(claimed([](message& one) { one.run.auditor = {}; }) == lost(reason::other_run));
  REQUIRE(claimed([](message& one) { one.parent = {}; }) == lost(reason::other_parent));
  REQUIRE(claimed([](message& one) { ++one.level; }) == lost(reason::other_place));
  REQUIRE(claimed([](message& one) { ++one.index; }) == lost(reason::other_place));
  REQUIRE(claimed([](message& one) { one.content = answer{}; }) == lost(reason::other_place));
  REQUIRE(claimed([](message& one) { one.from = party::auditor; }) == lost(reason::garbage));
}

TEST_CASE("a claim about a step is one of the party's own log") {
  const auto claimed = [](const std::function<void(claim&)>& change) {
    return after({9, 2, 40}, level_kind::steps, act::claim,
                 [&](message& one) { change(std::get<claim>(one.content)); });
  };
  const auto with_record = [&](const std::function<void(transcript::step_record&)>& change) {
    return claimed([&](claim& one) {
      auto record =
          std::get<transcript::step_record>(transcript::decode(one.record->record).value());
      change(record);
      one.value = record.state;
      one.record->record = transcript::encode(record);
    });
  };
  REQUIRE(!claimed([](claim&) {}));
  REQUIRE(!with_record([](transcript::step_record&) {}));
  const auto broken = lost(reason::commitment);
  REQUIRE(claimed([](claim& one) { one.record.reset(); }) == broken);
  REQUIRE(claimed([](claim& one) { one.value = digest_of("other"); }) == broken);
  REQUIRE(claimed([](claim& one) { ++one.record->index; }) == broken);
  REQUIRE(claimed([](claim& one) { one.record->index = (std::uint64_t{1} << 53) - 1; }) == broken);
  REQUIRE(claimed([](claim& one) { one.record->proof.pop_back(); }) == broken);
  REQUIRE(claimed([](claim& one) { one.record->proof[0] = {}; }) == broken);
  REQUIRE(claimed([](claim& one) { one.record->record.push_back(0); }) == broken);
  REQUIRE(with_record([](transcript::step_record& one) { one.state = digest_of("x"); }) == broken);
}

TEST_CASE("a record of the log that is another step's, or another job's, is no claim") {
  const std::array<std::uint64_t, 2> steps{1, 2};
  merkle_tree log;
  std::vector<byte_vector> records;
  for (const std::uint64_t step : steps) {
    transcript::step_record record;
    record.job_id = step == 1 ? job_id : digest_of("other");
    record.step = step;
    record.state = digest_of("state");
    records.push_back(transcript::encode(record));
    log.append(leaf_hash(records.back()));
  }
  records.push_back(transcript::encode(transcript::initial_record{job_id, digest_of("state")}));
  log.append(leaf_hash(records.back()));
  const auto note =
      transcript::parse_run_note(transcript::sign_run_note(job_id, log.size(), log.root(),
                                                           digest_of("state"), key_of("trainer"))
                                     .value())
          .value();
  const auto shown = [&](std::uint64_t index, std::uint64_t step) {
    const claim one{
        digest_of("state"),
        committed_record{index, records[index], log.inclusion_proof(index, log.size()).value()}};
    return verify_step_claim(one, step, note).has_value();
  };
  REQUIRE(shown(0, 1));
  REQUIRE(!shown(0, 2));
  REQUIRE(!shown(1, 2));
  REQUIRE(!shown(2, 0));
}

TEST_CASE("the last record of a step is shown with every resume behind it") {
  // Steps 1 to 4, resumed from 3, then 4 to 6; two resumes of 5 more that train nothing again.
  std::vector<transcript::record> all{transcript::header_record{job_id, {}, "example"},
                                      transcript::initial_record{job_id, digest_of("state")}};
  const auto steps = [&](std::uint64_t first, std::uint64_t last, const char* log) {
    for (std::uint64_t step = first; step <= last; ++step) {
      transcript::step_record one;
      one.job_id = job_id;
      one.step = step;
      one.rounding = transcript::rounding_reference{digest_of(log), step};
      all.emplace_back(one);
    }
  };
  const auto resume = [&](std::uint64_t from, std::uint64_t last) {
    transcript::resume_record one;
    one.job_id = job_id;
    one.from_step = from;
    one.last_step = last;
    all.emplace_back(one);
  };
  steps(1, 4, "first");
  resume(3, 4);
  steps(4, 5, "second");
  resume(5, 5);
  resume(5, 5);
  steps(6, 6, "third");
  all.emplace_back(transcript::close_record{job_id, 6, {}, {}});
  merkle_tree log;
  std::vector<byte_vector> records;
  for (const transcript::record& one : all) {
    records.push_back(transcript::encode(one));
    log.append(leaf_hash(records.back()));
  }
  const auto note =
      transcript::parse_run_note(transcript::sign_run_note(job_id, log.size(), log.root(),
                                                           digest_of("state"), key_of("trainer"))
                                     .value())
          .value();
  const auto last = [&](std::uint64_t step, const std::vector<std::uint64_t>& indices) {
    std::vector<committed_record> shown;
    for (const std::uint64_t index : indices) {
      shown.push_back({index, records[index], log.inclusion_proof(index, log.size()).value()});
    }
    return last_rounding(shown, step, 6, note);
  };
  // Records 0 and 1, steps at 2 to 5, a resume at 6, steps at 7 and 8, resumes at 9 and 10, a step.
  REQUIRE(last(3, {4, 6, 9, 10}).value()->content == digest_of("first"));
  REQUIRE(last(4, {7, 9, 10}).value()->content == digest_of("second"));
  REQUIRE(last(5, {8, 9, 10}).value()->bytes == 5);
  REQUIRE(last(6, {11}).value()->content == digest_of("third"));
  using list = std::vector<std::uint64_t>;
  // A superseded record; resumes left out, turned round, or shown twice; nothing; another step.
  for (const list& false_one :
       {list{5}, list{5, 6, 9, 10}, list{5, 9, 10}, list{7}, list{7, 9}, list{7, 10},
        list{7, 10, 9}, list{7, 9, 9, 10}, list{7, 9, 10, 10}, list{}, list{4, 6, 9, 10},
        list{7, 8, 9, 10}, list{12}, list{7, 9, 10, 12}}) {
    INFO(false_one.size() << " records, the first is " << (false_one.empty() ? 0 : false_one[0]));
    REQUIRE(!last(4, false_one));
  }
  records[7].back() ^= 1;
  REQUIRE(!last(4, {7, 9, 10}));
}

TEST_CASE("a record belongs to claims between steps alone") {
  REQUIRE(after(small, level_kind::operators, act::claim, [](message& one) {
            std::get<claim>(one.content).record = committed_record{};
          }) == lost(reason::garbage));
}

TEST_CASE("an opening fits the claims around it") {
  const sizes size{3, 5, 2 * content_chunk_bytes + 100};
  for (const level_kind kind : {level_kind::operators, level_kind::chunks}) {
    const auto opened = [&](const std::function<void(opening&)>& change) {
      const dispute_of about(size, fault{2, 3, 1}, {});
      table at = waiting(about, kind, act::opening);
      message one = expected_of(at);
      change(std::get<opening>(one.content));
      const std::string text = sign_message(one, key_of("trainer"));
      at.judge.receive(party::trainer, as_bytes_view(text), opened_at + 500);
      return at.decided();
    };
    REQUIRE(!opened([](opening&) {}));
    REQUIRE(opened([](opening& one) { one.leaf.back() ^= 1; }) == lost(reason::opening));
    REQUIRE(opened([](opening& one) { one.proof.clear(); }) == lost(reason::opening));
    REQUIRE(opened([](opening& one) { one.proof.push_back({}); }) == lost(reason::opening));
    REQUIRE(opened([](opening& one) { one.proof[0].bytes[0] ^= 1; }) == lost(reason::opening));
  }
}

TEST_CASE("the proof of the last leaf gives the root without it") {
  std::vector<byte_vector> leaves;
  merkle_tree tree;
  for (std::uint64_t i = 0; i < 70; ++i) {
    leaves.push_back(bytes_of("leaf " + std::to_string(i)));
    tree.append(leaf_hash(leaves.back()));
    const digest before = tree.root_at(i).value(), now = tree.root();
    opening shown{leaves.back(), tree.inclusion_proof(i, i + 1).value()};
    REQUIRE(root_after(i, shown).value() == now);
    REQUIRE(verify_opening(i, shown, before, now));
    REQUIRE(!verify_opening(i, shown, digest_of("x"), now));
    REQUIRE(!verify_opening(i, shown, before, digest_of("x")));
    shown.proof.push_back({});
    REQUIRE(!root_after(i, shown));
  }
  REQUIRE(!root_after(~std::uint64_t{0}, {}));
}

TEST_CASE("a chunk has the length that its place has") {
  // The wrong one claimed the root of a tensor that is a byte longer than there can be.
  const byte_vector longer(41, 0xaa);
  const dispute_of about(small, fault{2, 0, 0}, {});
  table at = waiting(about, level_kind::operators, act::opening);
  const digest root = leaf_hash(longer);
  std::uint64_t now = opened_at + 100;
  while (!at.judge.now().state().is_referees_turn()) {
    at.step(now, [&](party from, const std::string& text) {
      at.judge.receive(from, as_bytes_view(text), now);
    });
  }
  decision made = about.decide(at.judge.now());
  std::get<inner_bisection>(made).claimed.trainer = root;
  at.judge.decide(made, now).value();
  at.spread();
  message one = expected_of(at);
  one.content = opening{longer, {}};
  at.judge.receive(party::trainer, as_bytes_view(sign_message(one, key_of("trainer"))), now);
  REQUIRE(at.decided() == lost(reason::opening));
}

TEST_CASE("inside a step the openings have to lead to a tree of its operators") {
  const sizes size{3, 4, 40};
  const auto opened = [&](party liar, bool both_lie) {
    const dispute_of about(size, fault{2, 0, 0}, {});
    table at = waiting(about, level_kind::steps, act::opening);
    for (const party one : {party::trainer, party::auditor}) {
      at.spread();
      message sent =
          parse_message(
              as_bytes_view(at.players[static_cast<std::size_t>(one)].next_message().value()),
              1000000)
              .value();
      if (both_lie || one == liar) std::get<opening>(sent.content).proof.pop_back();
      const std::string text = sign_message(sent, key_of(to_string(one)));
      REQUIRE(at.judge.receive(one, as_bytes_view(text), opened_at + 500));
    }
    REQUIRE(!at.decided());
    REQUIRE(at.judge.decide(about.decide(at.judge.now()), opened_at + 600));
    return at.decided();
  };
  REQUIRE(opened(party::trainer, false) == verdict{{true, false}, reason::opening});
  REQUIRE(opened(party::auditor, false) == verdict{{false, true}, reason::opening});
  REQUIRE(opened(party::auditor, true) == verdict{{true, true}, reason::opening});
}

TEST_CASE("an answer is no longer than was asked for") {
  const auto answered = [](std::size_t bytes) {
    return after(small, level_kind::chunks, act::answer,
                 [&](message& one) { one.content = answer{byte_vector(bytes)}; });
  };
  REQUIRE(!answered(100));
  REQUIRE(answered(101) == lost(reason::garbage));
  REQUIRE(answered(100'000) == lost(reason::garbage));
}

TEST_CASE("what is not signed by the party is garbage in its turn, and noise else") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  const auto sent = [&](party from, const std::string& text) {
    table at(about);
    at.judge.receive(from, as_bytes_view(text), opened_at + 5);
    if (at.decided()) REQUIRE(judge_again(about.known, at.judge.transcript()));
    return at.decided();
  };
  table at(about);
  const message one = expected_of(at);
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("\xff\x00", 2), std::string(200'000, 'x'),
        std::string(message_limit(0) + 1, 'x'), sign_message(one, key_of("auditor"))}) {
    REQUIRE(sent(party::trainer, text) == lost(reason::garbage));
    REQUIRE(!sent(party::auditor, text));
  }
}

TEST_CASE("a transport that does not know who sends can ask who signed") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  table at(about);
  const std::string text = at.players[0].next_message().value();
  REQUIRE(at.judge.author(as_bytes_view(text)) == party::trainer);
  message one = parse_message(as_bytes_view(text), text.size()).value();
  one.run.job = digest_of("other");
  REQUIRE(!at.judge.author(as_bytes_view(sign_message(one, key_of("trainer")))));
  REQUIRE(!at.judge.author(as_bytes_view(text.substr(1))));
  // What came late is still its author's; what was said in another dispute is not said here.
  REQUIRE(at.judge.receive(party::trainer, as_bytes_view(text), opened_at + 1));
  REQUIRE(at.judge.author(as_bytes_view(text)) == party::trainer);
  table another(about, opened_at + 7);
  REQUIRE(!another.judge.author(as_bytes_view(text)));
  // A referee that was away knows its stored lines.
  at.spread();
  const std::string reply = at.players[1].next_message().value();
  const referee resumed =
      referee::resume(about.known, at.judge.transcript(), key_of("referee"), opened_at + 2).value();
  REQUIRE(resumed.author(as_bytes_view(reply)) == party::auditor);
}

TEST_CASE("two claims about one place contradict each other, whoever is on turn") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  table at = waiting(about, level_kind::operators, act::opening);
  message one = expected_of(at);
  at.judge.receive(party::trainer, as_bytes_view(format_message(one)), opened_at + 500);
  REQUIRE(!at.decided());
  std::get<opening>(one.content).leaf[0] ^= 1;
  REQUIRE(at.judge.receive(party::trainer, as_bytes_view(sign_message(one, key_of("trainer"))),
                           opened_at + 501));
  REQUIRE(at.decided() == lost(reason::contradiction));
}

TEST_CASE("the referee's decisions have their time, and fit what was opened") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  const auto refused = [](table& at, const decision& made) {
    const std::string before = at.judge.transcript();
    const bool out = !at.judge.decide(made, opened_at + 700);
    REQUIRE((!out || at.judge.transcript() == before));
    return out;
  };
  const inner_bisection inside{level_kind::operators, 2, 0, 0, {}};
  table at = waiting(about, level_kind::steps, act::opening);
  REQUIRE(refused(at, inside));
  REQUIRE(refused(at, ruling{{true, false}, reason::value, {}}));
  REQUIRE(refused(at, question{{}, 10}));
  for (int i = 0; i < 2; ++i) {
    at.step(opened_at + 600, [&](party from, const std::string& text) {
      at.judge.receive(from, as_bytes_view(text), opened_at + 600);
    });
  }
  inner_bisection other = inside;
  other.size = 0;
  REQUIRE(refused(at, other));
  other.size = max_leaves + 1;
  REQUIRE(refused(at, other));
  other = inside;
  other.bytes = 1;
  REQUIRE(refused(at, other));
  other = inside;
  other.subject = 1;
  REQUIRE(refused(at, other));
  other = inside;
  other.claimed.trainer = digest_of("x");
  REQUIRE(refused(at, other));
  REQUIRE(refused(at, inner_bisection{level_kind::chunks, 1, 0, 40, {}}));
  REQUIRE(refused(at, question{{}, 0}));
  REQUIRE(refused(at, question{{}, 1}));
  REQUIRE(refused(at, question{{}, max_answer_bytes + 1}));
  REQUIRE(refused(at, question{byte_vector(max_decision_bytes + 1), 2}));
  REQUIRE(refused(at, ruling{{true, false}, reason::value, byte_vector(max_decision_bytes + 1)}));
  REQUIRE(refused(at, ruling{{}, reason::value, {}}));
  REQUIRE(!refused(at, inside));
}

TEST_CASE("chunks are as many as the tensor's bytes have") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  table at = waiting(about, level_kind::operators, act::opening);
  for (int i = 0; i < 2; ++i) {
    at.step(opened_at + 600, [&](party from, const std::string& text) {
      at.judge.receive(from, as_bytes_view(text), opened_at + 600);
    });
  }
  auto made = std::get<inner_bisection>(about.decide(at.judge.now()));
  made.bytes = content_chunk_bytes + 1;
  REQUIRE(!at.judge.decide(made, opened_at + 700));
  made.bytes = 0;
  REQUIRE(!at.judge.decide(made, opened_at + 700));
  made.bytes = content_chunk_bytes;
  REQUIRE(at.judge.decide(made, opened_at + 700));
}

TEST_CASE("a referee that gives up convicts nobody, and need not be believed") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  table at(about);
  REQUIRE(!at.judge.decide(ruling{{true, false}, reason::referee, {}}, opened_at + 1));
  REQUIRE(at.judge.decide(ruling{{}, reason::referee, bytes_of("no memory")}, opened_at + 1));
  REQUIRE(at.decided() == verdict{{}, reason::referee});
  const judged again = judge_again(about.known, at.judge.transcript(), about.again()).value();
  REQUIRE(again.outcome == *at.decided());
  REQUIRE(again.step == 0);
}

TEST_CASE("a long reduction is bisected like a step, from the roots that its leaves name") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  table at = waiting(about, level_kind::operators, act::opening);
  std::uint64_t now = opened_at + 600;
  while (!at.judge.now().state().is_referees_turn()) {
    at.step(now, [&](party from, const std::string& text) {
      at.judge.receive(from, as_bytes_view(text), now);
    });
  }
  const both<std::vector<byte_vector>> sums{{bytes_of("sum"), bytes_of("wrong")},
                                            {bytes_of("sum"), bytes_of("right")}};
  const both<merkle_tree> trees{party_run::tree_of(sums.trainer), party_run::tree_of(sums.auditor)};
  const inner_bisection inside{
      level_kind::operators, 2, 0, 0, {trees.trainer.root(), trees.auditor.root()}};
  at.judge.decide(inside, now).value();
  REQUIRE(at.judge.now().inner() == inside);
  while (at.judge.now().state().expected().who) {
    const proceedings& state = at.judge.now();
    const turn& expected = state.state().expected();
    const party one = *expected.who;
    const auto& where = expected.where;
    REQUIRE(where == place{2, 1, where.what});
    message sent{one, state.run(), state.parent(), where.level, where.index, {}, {}};
    if (where.what == act::claim) {
      sent.content = claim{trees.of(one).root_at(1).value(), {}};
    } else {
      sent.content = opening{sums.of(one)[1], trees.of(one).inclusion_proof(1, 2).value()};
    }
    const std::string text = sign_message(sent, key_of(to_string(one)));
    REQUIRE(at.judge.receive(one, as_bytes_view(text), now));
  }
  REQUIRE(at.judge.now().openings().auditor.leaf == bytes_of("right"));
  at.judge.decide(ruling{{true, false}, reason::value, {}}, now).value();
  REQUIRE(judge_again(about.known, at.judge.transcript()).value().outcome == *at.decided());
}

TEST_CASE("a long answer may come again after a question with a short one") {
  const dispute_of about(small, fault{2, 0, 0}, {});
  table at = waiting(about, level_kind::steps, act::opening);
  std::uint64_t now = opened_at + 600;
  const auto play_round = [&] {
    while (at.judge.now().state().expected().who) {
      at.step(++now, [&](party from, const std::string& text) {
        REQUIRE(at.judge.receive(from, as_bytes_view(text), now));
      });
    }
  };
  play_round();
  at.judge.decide(question{bytes_of("much"), 2 * max_leaf_bytes}, now).value();
  at.spread();
  message one = expected_of(at);
  one.content = answer{byte_vector(2 * max_leaf_bytes)};
  const std::string text = sign_message(one, key_of("trainer"));
  REQUIRE(at.judge.receive(party::trainer, as_bytes_view(text), now));
  play_round();
  at.judge.decide(about.decide(at.judge.now()), now).value();
  play_round();
  at.judge.decide(question{bytes_of("little"), 10}, now).value();
  REQUIRE(!at.judge.receive(party::trainer, as_bytes_view(text), now));
  REQUIRE(!at.decided());
}

// SPDX-License-Identifier: Apache-2.0
// Checks of a program's own: registered, asked, answered and weighed like the library's.
#include <potl/checks/check.hpp>
#include <potl/checks/detail/question.hpp>
#include <potl/checks/replay.hpp>
#include <potl/checks/replayer.hpp>
#include <potl/policy.hpp>

#include "fake_run.hpp"
#include "run_fixture.hpp"

using namespace potl_test;
using namespace potl::checks;

namespace {

struct own_measurement;

/// A request of a kind that the library does not know.
struct own_request {
  std::uint64_t at = 0;
  std::string why;
  std::uint64_t length = 0;

  std::string kind() const { return "own"; }
  std::uint64_t from_step() const { return at; }
  std::uint64_t steps() const { return length; }
  std::string place() const { return std::to_string(at); }
  std::string key() const { return place() + "+" + std::to_string(length); }
  own_measurement answer(replayer& with) const;
};

struct own_measurement {
  own_request request;
  measured status = measured::ok;
  std::string message, not_finite;
  bool other_bits = false;

  bool differs() const { return other_bits; }
  double spent() const { return 0; }
};

own_measurement own_request::answer(replayer&) const { return {}; }

/// Asks at the steps of its options, and judges as it is told.
class own_check : public check {
 public:
  own_check(std::string name, std::vector<std::uint64_t> at, bool rejects = false)
      : name_(std::move(name)), at_(std::move(at)), rejects_(rejects) {}
  const std::string& name() const noexcept override { return name_; }
  json_value options() const override {
    json_value::array out;
    for (const std::uint64_t one : at_) out.emplace_back(one);
    return json_value::of({{"at", std::move(out)}});
  }
  result<std::vector<request>> plan(const run_view&, const digest&) const override {
    std::vector<request> out;
    for (const std::uint64_t one : at_) out.emplace_back(own_request{one, name_, 0});
    return out;
  }
  result<std::vector<finding>> judge(const run_view&, const digest&,
                                     std::span<const measurement> answers) const override {
    std::vector<finding> out;
    for (const own_measurement& one : of_kind<own_measurement>(answers)) {
      seen.push_back(one.request.why);
      finding found;
      found.check = name_;
      found.result = rejects_ ? outcome::reject : outcome::pass;
      found.reason = "step " + one.request.place();
      out.push_back(std::move(found));
    }
    return out;
  }
  mutable std::vector<std::string> seen;

 private:
  std::string name_;
  std::vector<std::uint64_t> at_;
  bool rejects_;
};

void add(const std::string& name, bool asks = true) {
  check_info info;
  info.name = name;
  info.asks = asks;
  info.make = [name](const json_value& options) -> result<check_pointer> {
    std::vector<std::uint64_t> at;
    if (const json_value* list = options.find("at")) {
      for (const json_value& one : *list->if_array()) {
        at.push_back(static_cast<std::uint64_t>(*one.if_integer()));
      }
    }
    return check_pointer(std::make_shared<const own_check>(name, at));
  };
  register_check(std::move(info));
}

question asks(const std::string& name, std::vector<std::uint64_t> at, bool earlier = false,
              bool rejects = false) {
  return {
      std::make_shared<const own_check>(name, std::move(at), rejects), nonce_of(1), earlier, {}};
}

transcript::ledger_memory known_of(const std::string& name, json_value options,
                                   std::uint8_t nonce) {
  transcript::ledger_memory out;
  transcript::ledger_challenge then;
  then.nonce = nonce_of(nonce);
  then.checks.emplace_back(name, std::move(options));
  out.challenges.push_back(std::move(then));
  return out;
}

question replay_of(std::uint64_t samples, std::vector<std::string> repeat = {}) {
  replay_options options;
  options.samples = samples;
  options.repeat = std::move(repeat);
  return {make_check("replay", options_json(options)).value(), nonce_of(1), false, {}};
}

std::vector<std::string> repeats(const question& one) {
  return replay_options::parse(one.check->options()).value().repeat;
}

std::vector<std::uint64_t> starts(const std::vector<request>& plan) {
  std::vector<std::uint64_t> out;
  for (const request& one : plan) out.push_back(one.from_step());
  return out;
}

}  // namespace

TEST_CASE("a check is registered under a name of its own") {
  for (const char* name : {"replay", "transcript", "", "Own", "9own", "own-check"}) {
    check_info info;
    info.name = name;
    INFO(name);
    REQUIRE_THROWS_AS(register_check(info), potl::exception);
  }
  add("own_named");
  REQUIRE(find_check("own_named") != nullptr);
  REQUIRE(find_check("own_other") == nullptr);
  REQUIRE(registered_checks().front()->name == "transcript");
  REQUIRE_FALSE(make_check("own_other", json_value::of({})));
  REQUIRE_FALSE(make_check("model", json_value::of({})));  // which nobody chooses
  REQUIRE_FALSE(make_check("replay", json_value::of({{"smaples", 3}})));
}

TEST_CASE("what is registered of a check decides how its findings weigh") {
  check_info hint;
  hint.name = "own_hint";
  hint.may_reject = false;
  hint.is_needed = false;
  register_check(hint);
  add("own_needed");
  finding drawn;
  drawn.check = "replay";
  drawn.rule = "replay.random_segments";
  drawn.result = outcome::pass;
  drawn.details = {
      {"segments", std::uint64_t{3}}, {"pool", std::uint64_t{1}}, {"judged", std::uint64_t{1}}};
  const auto verdict_with = [&](const char* check, outcome result) {
    finding one;
    one.check = check;
    one.result = result;
    one.reason = "a reason";
    const std::vector<finding> all = weigh({drawn, one});
    return judge(all, {true, true, true}, {}).result;
  };
  for (const char* needed : {"own_needed", "nobody_registered_this"}) {
    REQUIRE(verdict_with(needed, outcome::reject) == verdict::rejected);
    REQUIRE(verdict_with(needed, outcome::inconclusive) == verdict::inconclusive);
  }
  REQUIRE(verdict_with("own_hint", outcome::reject) == verdict::accepted);
  REQUIRE(verdict_with("own_hint", outcome::inconclusive) == verdict::accepted);
  // A summary of the draw whose numbers are no numbers is no draw.
  for (const char* name : {"segments", "pool", "judged"}) {
    finding broken = drawn;
    for (auto& [key, value] : broken.details) {
      if (key == name) value = std::string("1");
    }
    INFO(name);
    REQUIRE(judge(std::vector{broken}, {true, true, true}, {}).result == verdict::inconclusive);
  }
}

TEST_CASE("segments of an earlier draw join the present replay") {
  const auto options = [](std::uint64_t samples) { return json_value::of({{"samples", samples}}); };
  const std::string then = nonce_of(2).hex();
  auto joined = with_earlier({replay_of(3)}, known_of("replay", options(5), 2));
  REQUIRE(joined.size() == 1);
  REQUIRE(repeats(joined[0]) == std::vector{then + ":5"});
  REQUIRE(joined[0].nonce == nonce_of(1));
  // What was asked to be repeated stays.
  joined = with_earlier({replay_of(3, {then})}, known_of("replay", options(5), 2));
  REQUIRE(repeats(joined[0]) == std::vector{then, then + ":5"});
  // The present question is not asked twice, others of its nonce are.
  REQUIRE(repeats(with_earlier({replay_of(3)}, known_of("replay", options(3), 1))[0]).empty());
  REQUIRE(repeats(with_earlier({replay_of(3)}, known_of("replay", options(4), 1))[0]).size() == 1);
  REQUIRE(repeats(with_earlier({replay_of(3)}, known_of("replay", options(3), 2))[0]).size() == 1);
}

TEST_CASE("a check that is not asked now is asked as it was then") {
  add("own_then");
  const json_value options = json_value::of({{"at", json_value::array{1, 2}}});
  const auto asked = with_earlier({replay_of(3)}, known_of("own_then", options, 2));
  REQUIRE(asked.size() == 2);
  REQUIRE(asked[1].earlier);
  REQUIRE(asked[1].nonce == nonce_of(2));
  REQUIRE(asked[1].check->options() == options);
  std::vector<std::string> unknown;
  REQUIRE(with_earlier({}, known_of("own_forgotten", options, 2), &unknown).empty());
  REQUIRE(unknown == std::vector<std::string>{"own_forgotten"});
}

TEST_CASE("earlier questions are asked where they want more") {
  const fake_run run;
  add("own_a");
  add("own_b");
  const auto out = planned({asks("own_a", {1, 2}), asks("own_a", {2, 3}, true),
                            asks("own_b", {3, 1}, true), asks("own_b", {1})},
                           run.view, false);
  REQUIRE(out.size() == 3);
  REQUIRE(starts(out[0].plan) == std::vector<std::uint64_t>{1, 2});
  REQUIRE(starts(out[1].plan) == std::vector<std::uint64_t>{2, 3});
  REQUIRE(starts(out[2].plan) == std::vector<std::uint64_t>{1});
  REQUIRE(starts(distinct_requests(out)) == std::vector<std::uint64_t>{1, 2, 3});
}

TEST_CASE("requests come in the order in which states are derived one from another") {
  question one = asks("own_order", {});
  for (const auto& [at, length] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 4}, {4, 0}, {0, 2}, {2, 0}, {2, 2}, {4, 2}, {0, 0}}) {
    one.plan.emplace_back(own_request{at, "", length});
  }
  std::vector<std::string> order;
  for (const request& each : distinct_requests({&one, 1})) order.push_back(each.key());
  REQUIRE(order == std::vector<std::string>{"own 0+0", "own 0+2", "own 2+0", "own 2+2", "own 0+4",
                                            "own 4+0", "own 4+2"});
}

TEST_CASE("a check that says nothing has shown nothing") {
  const fake_run run;
  const question one = asks("own_silent", {1});
  const auto found = judged(one, run.view, {});
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].check == "own_silent");
  REQUIRE(found[0].result == outcome::inconclusive);
  const measurement answer{own_measurement()};
  REQUIRE(judged(one, run.view, {&answer, 1})[0].result == outcome::pass);
}

TEST_CASE("of a run that the audit rejects only what asks nothing is looked at") {
  const fake_run run;
  add("own_asks");
  add("own_reads", false);
  for (const bool rejected : {false, true}) {
    const auto out = planned({asks("own_asks", {1}), asks("own_reads", {})}, run.view, rejected);
    REQUIRE(out.size() == (rejected ? 1 : 2));
    REQUIRE(out.back().check->name() == "own_reads");
  }
}

TEST_CASE("what no noise excuses settles a run that a judge rejects") {
  fake_run run;
  add("own_judge");
  struct row {
    const char* arithmetic;
    measured status;
    const char* not_finite;
    bool differs, settled;
  };
  for (const row& one :
       {row{"ord32", measured::ok, "", false, false}, row{"ord32", measured::ok, "", true, true},
        row{"stock", measured::ok, "", true, false},
        row{"ord32", measured::ok, "w holds NaN", false, true},
        row{"stock", measured::ok, "w holds NaN", false, true},
        row{"stock", measured::withheld, "", false, true},
        row{"ord32", measured::tampered, "", false, true},
        row{"ord32", measured::verifier_error, "", false, false},
        row{"ord32", measured::verifier_error, "", true, false},
        row{"ord32", measured::unrepeatable, "", true, false}}) {
    run.view.agreed.arithmetic = one.arithmetic;
    auto passing = asks("own_judge", {0, 4});
    auto rejecting = asks("own_judge", {4}, false, true);
    const auto questions = planned({passing, rejecting}, run.view, false);
    own_measurement answer;
    answer.request.at = 4;
    answer.request.why = "here";
    answer.status = one.status;
    answer.not_finite = one.not_finite;
    answer.other_bits = one.differs;
    REQUIRE(settles(questions, run.view, answer) == one.settled);
    // Each judges what it asked for, for its own reason, and nothing else.
    const auto& judged = dynamic_cast<const own_check&>(*questions[0].check).seen;
    REQUIRE(judged ==
            (one.settled ? std::vector<std::string>{"own_judge"} : std::vector<std::string>{}));
    REQUIRE_FALSE(settles(std::span(questions).first(1), run.view, answer));
    answer.request.at = 9;  // nobody asked
    REQUIRE_FALSE(settles(questions, run.view, answer));
  }
}

TEST_CASE("an answer serves each request of its key, for its own reason") {
  const fake_run run;
  const auto questions = planned({asks("own_a", {1, 2}), asks("own_b", {2})}, run.view, false);
  own_measurement one, two;
  one.request = {1, "x"};
  two.request = {2, "y"};
  const std::vector<measurement> all{one, two};
  const auto nothing_more = [](const std::vector<request>&) { return std::vector<measurement>{}; };
  REQUIRE(answers_to(questions[0], run.view, all, nothing_more).size() == 2);
  const auto other = answers_to(questions[1], run.view, all, nothing_more);
  REQUIRE(other.size() == 1);
  REQUIRE(other[0].get_if<own_measurement>()->request.why == "own_b");
  REQUIRE(answers_to(questions[0], run.view, std::span(all).first(1), nothing_more).size() == 1);
}

// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <limits>

#include <potl/report.hpp>

#include "fake_run.hpp"

using namespace potl;

namespace {

finding made(std::string check, std::string rule, outcome result, std::string reason = "why") {
  finding out;
  out.check = std::move(check);
  out.rule = std::move(rule);
  out.result = result;
  out.reason = std::move(reason);
  return out;
}

finding random_summary(std::uint64_t segments, std::uint64_t judged, outcome result) {
  finding out = made("replay", "replay.random_segments", result, "random segments");
  out.details = {
      {"segments", segments}, {"pool", segments - 2}, {"requested", judged}, {"judged", judged}};
  return out;
}

struct scene {
  std::vector<finding> findings{made("transcript", "transcript.chain", outcome::pass),
                                made("replay", "replay.parameters", outcome::pass),
                                random_summary(250, 12, outcome::pass)};
  standing where{true, true, true};
  potl::policy policy;

  verdict verdict_of() const { return judge(findings, where, policy).result; }
};

}  // namespace

TEST_CASE("a run is accepted when everything mandatory was looked at and nothing contradicts") {
  REQUIRE(scene().verdict_of() == verdict::accepted);
}

TEST_CASE("any rejecting finding rejects, whatever else was found") {
  for (const char* check : {"transcript", "pev", "replay", "model", "verifier"}) {
    scene one;
    one.findings.push_back(made(check, "", outcome::reject));
    one.where = {};
    REQUIRE(one.verdict_of() == verdict::rejected);
  }
}

TEST_CASE("telemetry alone neither rejects nor prevents an acceptance") {
  scene one;
  one.findings.push_back(made("telemetry", "telemetry.consistent", outcome::reject));
  one.findings.push_back(made("telemetry", "telemetry.consistent", outcome::inconclusive));
  REQUIRE(one.verdict_of() == verdict::accepted);
  const auto weighed = weigh(one.findings);
  REQUIRE(weighed[3].result == outcome::note);
  REQUIRE(weighed[3].reason == "suspicious: why");
}

TEST_CASE("telemetry alone does not accept") {
  scene one;
  one.findings = {made("telemetry", "telemetry.consistent", outcome::pass)};
  REQUIRE(one.verdict_of() == verdict::inconclusive);
}

TEST_CASE("PEV alone does not accept") {
  scene one;
  one.findings = {made("pev", "loss.recomputed", outcome::pass)};
  REQUIRE(one.verdict_of() == verdict::inconclusive);
}

TEST_CASE("without a job of the verifier's own nothing is accepted") {
  scene one;
  one.where.job_is_own = false;
  REQUIRE(one.verdict_of() == verdict::inconclusive);
}

TEST_CASE("without a commitment nothing is accepted") {
  scene one;
  one.where.committed = false;
  REQUIRE(one.verdict_of() == verdict::inconclusive);
}

TEST_CASE("what could not be judged in a mandatory part prevents an acceptance") {
  for (const char* check : {"transcript", "replay", "model", "verifier"}) {
    scene one;
    one.findings.push_back(made(check, "", outcome::inconclusive));
    REQUIRE(one.verdict_of() == verdict::inconclusive);
  }
}

TEST_CASE("a random draw that was not judged in full prevents an acceptance") {
  scene one;
  one.findings[2] = random_summary(250, 11, outcome::inconclusive);
  REQUIRE(one.verdict_of() == verdict::inconclusive);
}

TEST_CASE("no random segment at all prevents an acceptance, and only while its rule is on") {
  scene one;
  one.findings[2] = random_summary(250, 0, outcome::pass);
  REQUIRE(one.verdict_of() == verdict::inconclusive);
  one.findings.pop_back();
  REQUIRE(one.verdict_of() == verdict::inconclusive);
  const rule_off off("replay.random_segments");
  REQUIRE(one.verdict_of() == verdict::accepted);
}

TEST_CASE("a run whose every segment was replayed is accepted without a random one") {
  scene one;
  one.findings[2] = random_summary(2, 0, outcome::pass);
  REQUIRE(one.verdict_of() == verdict::accepted);
}

TEST_CASE("a detection goal asks for as many random segments as it needs") {
  scene one;
  one.policy = policy::for_detection(0.95, 0.05);
  REQUIRE(one.policy.samples(248) > 12);
  REQUIRE(one.verdict_of() == verdict::inconclusive);
  one.findings[2] = random_summary(250, 60, outcome::pass);
  REQUIRE(one.verdict_of() == verdict::accepted);
}

TEST_CASE("a policy has a goal unless it says that it has none") {
  REQUIRE(policy::parse(json_value::of({}))->probability == 0.9);
  REQUIRE(policy::parse(json_value::of({}))->cheat_fraction == 0.2);
  REQUIRE(policy::parse(json_value::of({{"probability", 0}}))->samples(1000) == 1);
  REQUIRE(policy::parse(json_value::of({{"probability", 2}, {"cheat_fraction", 0.1}})).why().code ==
          errc::usage);
  REQUIRE(
      policy::parse(json_value::of({{"probability", 0.9}, {"cheat_fraction", 0.1}}))->probability ==
      0.9);
}

TEST_CASE("exit codes are 0, 1 and 3") {
  REQUIRE(exit_code(verdict::accepted) == 0);
  REQUIRE(exit_code(verdict::rejected) == 1);
  REQUIRE(exit_code(verdict::inconclusive) == 3);
}

TEST_CASE("the sentence of a rejection names the broken record before what follows from it") {
  scene one;
  one.findings.push_back(made("replay", "replay.parameters", outcome::reject, "far away"));
  one.findings.push_back(made("transcript", "transcript.chain", outcome::reject, "chain broken"));
  REQUIRE(judge(one.findings, one.where, one.policy).sentence.find("chain broken") !=
          std::string::npos);
}

TEST_CASE("the report holds verdict, strength, replays, cost and limits") {
  scene one;
  fake_run run;
  finding segment = made("replay", "replay.parameters", outcome::pass);
  segment.first_step = 11;
  segment.last_step = 20;
  segment.statistic = 0.25;
  segment.details = {{"why", "random"}, {"status", "ok"}, {"equal", false}};
  one.findings.push_back(segment);
  report_context context;
  context.nonce = "ab";
  context.seconds = 0.01;
  context.costs = {{"replay", 0.005}};
  const json_value report = make_report(&run.view, one.findings, one.policy, context);
  REQUIRE(*report.find("verdict")->if_string() == "accepted");
  const json_value& replay = report.find("replays")->if_array()->at(0);
  REQUIRE(*replay.find("start")->if_integer() == 10);
  REQUIRE(*replay.find("end")->if_integer() == 20);
  REQUIRE(*replay.find("ratio")->if_number() == 0.25);
  REQUIRE(*replay.find("fits")->if_boolean());
  // 100 steps of a millisecond.
  REQUIRE(report.at("cost").number("training_seconds").value() == Approx(0.1));
  REQUIRE(report.at("cost").number("fraction").value() == Approx(0.1));
  REQUIRE(report.at("strength").at("table").size().value() == 4);
  REQUIRE(report.find("limits")->if_array()->size() > 3);
  REQUIRE(is_canonical(as_bytes_view(canonical_json(report))));
}

TEST_CASE("a report lists what decided first, and telemetry behind what passed") {
  const fake_run run(100, 10);
  const json_value report =
      make_report(&run.view,
                  {made("pev", "", outcome::note), made("telemetry", "", outcome::inconclusive),
                   made("model", "", outcome::pass), made("pev", "", outcome::inconclusive),
                   made("replay", "", outcome::reject)},
                  {}, {});
  std::string order;
  for (const json_value& one : *report.find("findings")->if_array()) {
    order += *one.find("check")->if_string() + " ";
  }
  REQUIRE(order == "replay pev model telemetry pev ");
}

TEST_CASE("a report needs no run") {
  const json_value report =
      make_report(nullptr, {made("verifier", "", outcome::inconclusive, "unreadable")}, {}, {});
  REQUIRE(*report.find("verdict")->if_string() == "inconclusive");
}

TEST_CASE("the loss timeline keeps a thousand points, first and last step among them") {
  fake_run run(5000, 10, 500);
  const json_value report = make_report(&run.view, {}, {}, {});
  const auto steps = report.at("timeline").at("step");
  REQUIRE(steps.size().value() <= 1000);
  REQUIRE(steps.at(std::size_t{0}).integer().value() == 1);
  REQUIRE(steps.at(steps.size().value() - 1).integer().value() == 5000);
}

TEST_CASE("numbers and names that JSON cannot carry do not break a report") {
  scene one;
  fake_run run;
  run.records[3].loss = std::numeric_limits<double>::quiet_NaN();
  run.records.back().step = ~std::uint64_t{0};
  one.findings[0].statistic = std::numeric_limits<double>::infinity();
  one.findings[0].first_step = ~std::uint64_t{0};
  one.findings[0].reason = "\xff\xfe";
  const json_value report = make_report(&run.view, one.findings, {}, {});
  REQUIRE(parse_json(as_bytes_view(canonical_json(report))).has_value());
}

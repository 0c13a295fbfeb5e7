// SPDX-License-Identifier: Apache-2.0
// What a report says first: may I pay, what was looked at, and what would make it stronger.
#include "catch.hpp"

#include <potl/report.hpp>

#include "fake_run.hpp"

using namespace potl;

namespace {

finding made(std::string check, std::string rule, outcome result) {
  finding out;
  out.check = std::move(check);
  out.rule = std::move(rule);
  out.result = result;
  out.reason = "why";
  return out;
}

// A run of 60 segments of ten steps, of which `drawn` were replayed at random, beside the first
// and the last.
struct scene {
  explicit scene(std::uint64_t drawn) : run(600, 10) {
    finding summary = made("replay", "replay.random_segments", outcome::pass);
    summary.details = {
        {"segments", std::uint64_t{60}}, {"pool", std::uint64_t{58}}, {"judged", drawn}};
    findings = {made("transcript", "transcript.chain", outcome::pass), summary};
    replayed(0, "first");
    for (std::uint64_t i = 1; i <= drawn; ++i) replayed(i, "random");
    replayed(59, "final");
    context.seconds = 10;
    context.costs = {{"transcript", 1.0}, {"replay", 0.5 * static_cast<double>(drawn + 2)}};
  }

  void replayed(std::uint64_t segment, const char* why, const char* status = "ok") {
    finding one = made("replay", "replay.parameters", outcome::pass);
    one.first_step = 10 * segment + 1;
    one.last_step = 10 * segment + 10;
    one.details = {{"why", why}, {"status", status}, {"equal", true}};
    findings.push_back(one);
  }

  json_value report() const { return make_report(&run.view, findings, wanted, context); }

  fake_run run;
  std::vector<finding> findings;
  potl::policy wanted;
  report_context context;
};

std::vector<std::string> steps_of(const json_value& report) {
  std::vector<std::string> out;
  for (const json_value& one : *report.find("next")->find("steps")->if_array()) {
    out.push_back(*one.if_string());
  }
  return out;
}

std::string joined(const json_value& list) {
  std::string out;
  for (const json_value& one : *list.if_array()) out += *one.if_string() + "; ";
  return out;
}

std::vector<std::uint64_t> samples_of(const json_value& report) {
  std::vector<std::uint64_t> out;
  for (const json_value& one : *report.find("next")->find("stronger")->if_array()) {
    out.push_back(one.root().count("samples").value());
  }
  return out;
}

double seconds_per_segment(const scene& of) {
  const json_value report = of.report();
  return report.at("next").number("seconds_per_segment").value();
}

std::string answer_of(const json_value& report) { return *report.find("answer")->if_string(); }

}  // namespace

TEST_CASE("the answer says whether to pay, and when a cheat would rather have been missed") {
  REQUIRE(answer_of(scene(30).report()) ==
          "You may pay: everything that was looked at is as agreed, and as much was looked at as "
          "your policy asks.");
  const std::string weak = answer_of(scene(10).report());
  REQUIRE(weak.find("You may pay") == 0);
  REQUIRE(weak.find("would more likely than not have been missed") != std::string::npos);
  scene bad(30);
  bad.findings.push_back(made("replay", "replay.parameters", outcome::reject));
  REQUIRE(answer_of(bad.report()).find("Do not pay for this run") == 0);
  scene open(30);
  open.findings.push_back(made("verifier", "", outcome::inconclusive));
  REQUIRE(answer_of(open.report()).find("Do not decide yet") == 0);
}

TEST_CASE("a stronger draw costs what a segment of this one cost") {
  const json_value report = scene(12).report();
  REQUIRE(report.at("next").number("seconds_per_segment").value() == Approx(0.5));
  const auto rows = report.at("next").at("stronger");
  for (std::size_t i = 0; i < rows.size().value(); ++i) {
    const auto samples = rows.at(i).count("samples").value();
    const double more = rows.at(i).number("more_seconds").value();
    REQUIRE(more == Approx(0.5 * static_cast<double>(samples - 12)));
    REQUIRE(rows.at(i).number("seconds").value() == Approx(10 + more));
    REQUIRE(rows.at(i).count("more_segments").value() == samples - 12);
  }
}

TEST_CASE("a stronger draw has the probabilities that its own report would have") {
  const auto rows = scene(12).report();
  const auto table = rows.at("next").at("stronger").at(std::size_t{1}).at("table");
  const std::uint64_t samples = samples_of(rows)[1];
  const double fractions[] = {0.01, 0.05, 0.2};
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(table.at(i).number("cheat_fraction").value() == fractions[i]);
    REQUIRE(table.at(i).number("probability").value() ==
            replay_strength{60, 58, samples}.probability(fractions[i]));
  }
}

TEST_CASE("stronger draws reach round probabilities for 5 %, and end with every segment") {
  const auto samples = samples_of(scene(12).report());
  REQUIRE(samples.size() == 4);
  const double goals[] = {0.8, 0.95, 0.99};
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(replay_strength{60, 58, samples[i]}.probability(0.05) >= goals[i]);
    REQUIRE(replay_strength{60, 58, samples[i] - 1}.probability(0.05) < goals[i]);
  }
  REQUIRE(samples.back() == 58);
}

TEST_CASE("segments that a larger draw brings along are part of its cost") {
  scene one(12);
  one.replayed(40, "top-q");
  one.replayed(41, "top-q");
  one.replayed(42, "top-q");
  one.context.costs = {{"replay", 0.5 * 17}};
  REQUIRE(seconds_per_segment(one) == Approx(0.5 * (1 + 3.0 / 12)));
}

TEST_CASE("time that worker processes spent side by side is waited for once") {
  scene one(12);
  one.context.costs = {{"replay", 40.0}};
  one.context.seconds = 10;
  REQUIRE(seconds_per_segment(one) == Approx(10.0 / 14));
}

TEST_CASE("what was not trained to its end says nothing about the cost") {
  scene one(12);
  one.replayed(40, "random", "withheld");
  REQUIRE(seconds_per_segment(one) == Approx(0.5));
}

TEST_CASE("when every segment was drawn, the report says that nothing is stronger") {
  const json_value report = scene(58).report();
  REQUIRE(samples_of(report).empty());
  REQUIRE(report.find("next")->find("seconds_per_segment")->type() == json_value::kind::null);
  REQUIRE(
      steps_of(report) ==
      std::vector<std::string>{"Replay cannot be made stronger: every segment was trained again."});
  REQUIRE(answer_of(report).find("every segment was trained again") != std::string::npos);
}

TEST_CASE("when every segment was judged, for whatever reason, nothing is said to be left") {
  scene of(20);
  for (std::uint64_t i = 21; i <= 58; ++i) of.replayed(i, "top-q");
  of.findings[1].details.emplace_back("all", true);
  finding reach = made("replay", "replay.reach", outcome::pass);
  reach.details = {{"limit", 1.0}, {"travelled", 2.0}, {"stretches", std::uint64_t{60}}};
  of.findings.push_back(reach);
  const json_value report = of.report();
  REQUIRE(answer_of(report) ==
          "You may pay: every segment was trained again, and all of them are as agreed.");
  REQUIRE(report.find("sentence")
              ->if_string()
              ->find("every segment was trained again (20 of 60 were drawn at random)") !=
          std::string::npos);
  REQUIRE(report.at("strength").at("reach").count("false_segments").value() == 0);
  REQUIRE(report.at("strength").at("table").at(std::size_t{0}).number("probability").value() == 1);
  REQUIRE(report.at("strength").count("sampled").value() == 20);
  REQUIRE(samples_of(report).empty());
  of.findings[1].details.back().second = false;
  REQUIRE(answer_of(of.report()).find("everything that was looked at") != std::string::npos);
}

TEST_CASE("a rejected run has no stronger draw, but a next step") {
  scene bad(12);
  bad.findings.push_back(made("replay", "replay.parameters", outcome::reject));
  REQUIRE(samples_of(bad.report()).empty());
  REQUIRE(steps_of(bad.report()).front().find("Send the trainer the findings") == 0);
  REQUIRE(steps_of(bad.report()).back().find("a new run of a new job") != std::string::npos);
}

TEST_CASE("whom only replays convict may be honest: to repeat the run in one go tells") {
  const auto first = [](const char* check, const char* rule, const char* arithmetic = "ord32") {
    scene bad(12);
    bad.run.view.agreed.arithmetic = arithmetic;
    bad.findings.push_back(made("pev", "pev.loss", outcome::reject));
    bad.findings.push_back(made(check, rule, outcome::reject));
    return steps_of(bad.report()).front();
  };
  REQUIRE(first("replay", "replay.parameters").find("First repeat the run in one go") == 0);
  // Not what is missing or damaged, nor what needs no replay; and rounding does not repeat.
  REQUIRE(first("replay", "transcript.withheld").find("Send the trainer") == 0);
  REQUIRE(first("transcript", "agreed.samples").find("Send the trainer") == 0);
  REQUIRE(first("replay", "replay.parameters", "stock").find("Send the trainer") == 0);
}

TEST_CASE("whose recipe diverges is told to agree on another job") {
  scene one(12);
  one.findings.push_back(made("transcript", "transcript.finite", outcome::inconclusive));
  one.findings.push_back(made("replay", "transcript.finite", outcome::inconclusive));
  one.findings.push_back(made("telemetry", "telemetry.consistent", outcome::inconclusive));
  REQUIRE(answer_of(one.report()).find("No run with NaN or infinities is accepted.") == 0);
  REQUIRE(steps_of(one.report()).size() == 1);
  REQUIRE(steps_of(one.report()).front().find("If your own replays are not finite") == 0);

  scene repeated(12);  // what is not finite is a repeat of the verifier's
  repeated.findings.push_back(made("replay", "transcript.finite", outcome::inconclusive));
  REQUIRE(answer_of(repeated.report()).find("Do not decide yet") == 0);
  REQUIRE(steps_of(repeated.report()).back().find("Read the findings") == 0);
}

TEST_CASE("whoever mixed up two jobs is told to look at that first") {
  scene mixed(12);
  mixed.findings.push_back(made("transcript", "agreed.job", outcome::reject));
  REQUIRE(answer_of(mixed.report()).find("is of another job than yours") != std::string::npos);
  const auto steps = steps_of(mixed.report());
  REQUIRE(steps.size() == 3);
  REQUIRE(steps.front().find("run, job and commitment belong together") != std::string::npos);
}

TEST_CASE("whoever passed another model is told to look at that first") {
  scene other(12);
  other.findings.push_back(made("model", "model.delivered", outcome::reject));
  REQUIRE(answer_of(other.report()).find("Do not pay for this model") == 0);
  REQUIRE(steps_of(other.report()).front().find("First check that the file is the one") == 0);

  other.findings.push_back(made("replay", "replay.parameters", outcome::reject));
  REQUIRE(answer_of(other.report()).find("it was not trained as agreed") != std::string::npos);
  REQUIRE(steps_of(other.report()).front().find("Send the trainer the findings") == 0);
}

TEST_CASE("a log whose records are of several jobs is no mixed-up file") {
  scene spliced(12);
  spliced.findings.push_back(made("transcript", "agreed.job", outcome::reject));
  spliced.findings.back().first_step = 3;
  REQUIRE(answer_of(spliced.report()).find("there is evidence") != std::string::npos);
  REQUIRE(steps_of(spliced.report()).front().find("Send the trainer the findings") == 0);
}

TEST_CASE("segments that were drawn and could not be judged are not to be drawn more often") {
  scene none(0);
  finding& summary = none.findings[1];
  REQUIRE(summary.rule == "replay.random_segments");
  summary.result = outcome::inconclusive;
  summary.details.emplace_back("requested", std::uint64_t{12});
  const auto steps = steps_of(none.report());
  REQUIRE(steps.size() == 1);
  REQUIRE(steps.front().find("each says what was missing") != std::string::npos);
}

TEST_CASE("a draw that was too small for the policy says how many segments it asks for") {
  scene few(5);
  const auto needed = segments_needed({60, 58, 5}, few.wanted);
  const json_value report = few.report();
  REQUIRE(*report.find("verdict")->if_string() == "inconclusive");
  REQUIRE(steps_of(report) ==
          std::vector<std::string>{"Replay at least " + std::to_string(needed) +
                                   " random segments (--replay-samples " + std::to_string(needed) +
                                   "; in C++ replay_options::samples)."});
  REQUIRE(samples_of(report).front() == needed);
}

TEST_CASE("whoever held no job and no commitment is told to pass them") {
  scene one(12);
  one.run.view.job_is_own = one.run.view.committed = false;
  const auto steps = steps_of(one.report());
  REQUIRE(steps.size() == 2);
  REQUIRE(steps[0].find("--job") != std::string::npos);
  REQUIRE(steps[1].find("--commitment") != std::string::npos);
}

TEST_CASE(
    "without a commitment the answer is that of an interim look, and nothing came after one") {
  scene one(12);
  one.run.view.committed = false;
  const json_value report = one.report();
  REQUIRE(answer_of(report).find("this is an interim look") != std::string::npos);
  REQUIRE(joined(*report.find("looked_at")) ==
          "the record of 600 steps; 14 of 60 segments, trained again: 12 drawn at random; ");
  one.run.view.job_is_own = false;
  REQUIRE(answer_of(one.report()).find("could not be judged") != std::string::npos);
}

TEST_CASE("a run that cannot be read, and one that nobody replayed, have next steps") {
  const json_value unread = make_report(nullptr, {}, {}, {});
  REQUIRE(steps_of(unread).front().find("a run directory that can be read") != std::string::npos);
  fake_run run;
  const json_value bare = make_report(&run.view, {}, {}, {});
  REQUIRE(steps_of(bare).front().find("Replay check") != std::string::npos);
  const json_value open =
      make_report(&run.view, {made("verifier", "", outcome::inconclusive)}, {}, {});
  REQUIRE(steps_of(open).front().find("each says what was missing") != std::string::npos);
}

TEST_CASE("what was looked at is named, and nothing that was only asked for") {
  scene one(12);
  one.replayed(40, "random", "withheld");
  finding delivered = made("model", "model.delivered", outcome::pass);
  one.findings.push_back(delivered);
  one.findings.push_back(made("pev", "", outcome::inconclusive));
  const json_value few = one.report();
  REQUIRE(joined(*few.find("looked_at")) ==
          "the record of 600 steps; 14 of 60 segments, trained again: 12 drawn at random after "
          "the commitment; ");
  finding given = made("verifier", "", outcome::note);
  given.details = {{"given_nonce", true}};
  scene known(12);
  known.findings.push_back(given);
  REQUIRE(joined(*known.report().find("looked_at")).find("after the commitment") ==
          std::string::npos);
  one.findings[one.findings.size() - 2].details = {{"delivered", true}};
  one.findings.back().result = outcome::pass;
  one.findings.push_back(made("own_check", "", outcome::pass));
  const json_value more = one.report();
  const std::string all = joined(*more.find("looked_at"));
  REQUIRE(all.find("the delivered model, compared") != std::string::npos);
  REQUIRE(all.find("losses of drawn batches") != std::string::npos);
  REQUIRE(all.find("what the check own_check looks at") != std::string::npos);
}

TEST_CASE("a cost beyond all numbers is not predicted") {
  scene one(12);
  one.context.costs = {{"replay", 1e308}};
  one.context.seconds = 0;
  REQUIRE(samples_of(one.report()).empty());
}

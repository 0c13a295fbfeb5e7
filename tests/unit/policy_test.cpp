// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <potl/policy.hpp>

using namespace potl;

namespace {

finding made(const std::string& check, const std::string& rule, outcome result) {
  finding out;
  out.check = check;
  out.rule = rule;
  out.result = result;
  out.reason = "a reason";
  return out;
}

finding draw(std::uint64_t judged) {
  finding out = made("replay", "replay.random_segments", outcome::pass);
  out.details = {
      {"segments", std::uint64_t{250}}, {"pool", std::uint64_t{248}}, {"judged", judged}};
  return out;
}

verdict verdict_of(const std::vector<finding>& findings, const policy& wanted = {},
                   const standing& where = {true, true, true}) {
  return judge(findings, where, wanted).result;
}

}  // namespace

TEST_CASE("what PEV could not judge does not hold a verdict up, and what it rejects does") {
  REQUIRE(verdict_of({draw(12), made("pev", "", outcome::inconclusive)}) == verdict::accepted);
  REQUIRE(verdict_of({draw(12), made("pev", "", outcome::reject)}) == verdict::rejected);
  REQUIRE(verdict_of({draw(12), made("model", "", outcome::inconclusive)}) ==
          verdict::inconclusive);
}

TEST_CASE("where the same steps end in two ways, nothing that was recomputed rejects") {
  std::vector<finding> findings{made("replay", "replay.parameters", outcome::reject),
                                made("pev", "loss.recomputed", outcome::reject), draw(12)};
  REQUIRE(verdict_of(weigh(findings)) == verdict::rejected);
  finding twice = made("replay", "", outcome::inconclusive);
  twice.details = {{"unrepeatable", true}};
  findings.push_back(twice);
  const std::vector<finding> weighed = weigh(findings);
  REQUIRE(verdict_of(weighed) == verdict::inconclusive);
  REQUIRE(weighed[0].reason.ends_with("does not repeat the agreed steps: a reason"));
  // Nor is it waved through where the check is not needed.
  finding loss = made("pev", "", outcome::inconclusive);
  loss.details = twice.details;
  REQUIRE(verdict_of(weigh({made("pev", "loss.recomputed", outcome::reject), loss, draw(12)})) ==
          verdict::inconclusive);
  // What nobody computed stands.
  findings.push_back(made("transcript", "transcript.chain", outcome::reject));
  REQUIRE(verdict_of(weigh(findings)) == verdict::rejected);
}

TEST_CASE("the strongest single draw counts, wherever it stands, and no two together") {
  policy wanted;
  wanted.probability = 0;
  wanted.min_random_segments = 12;
  REQUIRE(verdict_of({draw(12), draw(3)}, wanted) == verdict::accepted);
  REQUIRE(verdict_of({draw(3), draw(12)}, wanted) == verdict::accepted);
  REQUIRE(verdict_of({draw(11), draw(11)}, wanted) == verdict::inconclusive);
}

TEST_CASE("the least number of segments is asked for without any other goal") {
  policy wanted;
  wanted.probability = 0;
  wanted.min_random_segments = 20;
  REQUIRE(verdict_of({draw(19)}, wanted) == verdict::inconclusive);
  REQUIRE(verdict_of({draw(20)}, wanted) == verdict::accepted);
}

TEST_CASE("a goal of detection is met by the first number of segments that meets it") {
  const policy wanted = policy::for_detection(0.95, 0.1);
  const std::uint64_t needed = wanted.samples(250);
  std::uint64_t least = 1;
  while (verdict_of({draw(least)}, wanted) != verdict::accepted) ++least;
  REQUIRE(least <= needed);
  REQUIRE(replay_strength{250, 248, least}.probability(0.1) >= 0.95);
  REQUIRE(replay_strength{250, 248, least - 1}.probability(0.1) < 0.95);
}

TEST_CASE("who is missing keeps a run from being accepted") {
  REQUIRE(verdict_of({draw(12)}, {}, {true, true, true}) == verdict::accepted);
  REQUIRE(verdict_of({draw(12)}, {}, {false, true, true}) == verdict::inconclusive);
  REQUIRE(verdict_of({draw(12)}, {}, {true, false, true}) == verdict::inconclusive);
  REQUIRE(verdict_of({draw(12)}, {}, {true, true, false}) == verdict::inconclusive);
}

// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <potl/policy.hpp>
#include <potl/statistics/detail/soundness.hpp>

namespace {

potl::judgement judged(std::uint64_t segments, std::uint64_t pool, std::uint64_t sampled,
                       const potl::policy& wanted) {
  potl::finding summary;
  summary.check = "replay";
  summary.rule = "replay.random_segments";
  summary.result = potl::outcome::pass;
  summary.details = {{"segments", segments}, {"pool", pool}, {"judged", sampled}};
  const std::vector<potl::finding> findings{summary};
  return potl::judge(findings, {true, true, true}, wanted);
}

}  // namespace

TEST_CASE("the samples that a goal needs for all segments satisfy the policy of that goal") {
  for (const std::uint64_t segments : {3U, 10U, 15U, 60U, 250U, 1000U}) {
    for (const double fraction : {0.01, 0.05, 0.2, 0.5}) {
      for (const double probability : {0.5, 0.9, 0.99}) {
        const std::uint64_t pool = segments - 2;
        const std::uint64_t samples =
            std::min(pool, potl::statistics::samples_for(segments, probability, fraction));
        const auto out =
            judged(segments, pool, samples, potl::policy::for_detection(probability, fraction));
        INFO(segments << " segments, fraction " << fraction << ", probability " << probability);
        REQUIRE(out.result == potl::verdict::accepted);
      }
    }
  }
}

TEST_CASE("one random segment less than a policy needs is inconclusive") {
  const auto wanted = potl::policy::for_detection(0.9, 0.2);
  // 3 of 15 segments, all of them among the 13 that are drawn from: 6 samples see .878, 7 see .930.
  REQUIRE(judged(15, 13, 7, wanted).result == potl::verdict::accepted);
  const auto less = judged(15, 13, 6, wanted);
  REQUIRE(less.result == potl::verdict::inconclusive);
  REQUIRE(less.sentence.find("the policy asks for 7") != std::string::npos);
}

TEST_CASE("the default policy does not accept a long run for a single random segment") {
  REQUIRE(judged(250, 248, 1, potl::policy()).result == potl::verdict::inconclusive);
  potl::policy none;
  none.probability = 0;
  REQUIRE(judged(250, 248, 1, none).result == potl::verdict::accepted);
}

TEST_CASE("an acceptance that would rather miss a cheat in 5 % of the segments says so") {
  const auto weak = judged(250, 248, 12, potl::policy());
  REQUIRE(weak.result == potl::verdict::accepted);
  REQUIRE(weak.sentence.find("with probability 0.") != std::string::npos);
  REQUIRE(weak.sentence.find("they would have been missed. ") != std::string::npos);
  const auto strong = judged(250, 248, 60, potl::policy());
  REQUIRE(strong.result == potl::verdict::accepted);
  REQUIRE(strong.sentence.find("missed") == std::string::npos);
}

TEST_CASE("twelve random segments satisfy the default policy, however long the run") {
  for (std::uint64_t segments = 1; segments < 100'000; segments += 1 + segments / 50) {
    const std::uint64_t pool = segments - std::min<std::uint64_t>(segments, 2);
    const auto out = judged(segments, pool, std::min<std::uint64_t>(pool, 12), potl::policy());
    INFO(segments << " segments");
    REQUIRE(out.result == potl::verdict::accepted);
  }
}

TEST_CASE("reach says how far the segments that were missed can have carried the weights") {
  potl::finding drawn, reach;
  drawn.check = reach.check = "replay";
  drawn.rule = "replay.random_segments";
  drawn.result = reach.result = potl::outcome::pass;
  drawn.details = {{"segments", std::uint64_t{250}},
                   {"pool", std::uint64_t{248}},
                   {"judged", std::uint64_t{12}}};
  reach.rule = "replay.reach";
  reach.details = {{"limit", 2.5}, {"travelled", 10.0}, {"stretches", std::uint64_t{107}}};
  std::vector<potl::finding> findings{drawn, reach};
  const auto found = potl::reach_of(findings);
  REQUIRE(found.has_value());
  // 1 - C(248 - b, 12) / C(248, 12) is below .95 up to b = 53.
  REQUIRE(found->false_segments == 53);
  REQUIRE(found->displacement == 53 * 2.5 / 10);
  // Several in a stretch lead no further than it does.
  findings[1].details[2].second = std::uint64_t{20};
  REQUIRE(potl::reach_of(findings)->false_segments == 53);
  REQUIRE(potl::reach_of(findings)->displacement == 20 * 2.5 / 10);
  findings[1].details.pop_back();
  REQUIRE_FALSE(potl::reach_of(findings).has_value());
  // None is false where all were judged.
  findings[0].details[2].second = std::uint64_t{248};
  findings[1].details.emplace_back("stretches", std::uint64_t{1});
  REQUIRE(potl::reach_of(findings)->false_segments == 0);
}

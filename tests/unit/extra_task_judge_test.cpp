// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <potl/checks/detail/extra_task_audit.hpp>
#include <potl/checks/extra_task.hpp>
#include <potl/core/detail/rng.hpp>

#include "fake_run.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

// A model that knows the first `learned` extra samples and answers the others in turn; every class
// is right for a tenth of what it does not know.
struct model {
  std::uint64_t samples = 400, classes = 10;
  extra_task_options options;
  std::vector<double> extra, control;
  std::vector<digest> earlier;
  std::vector<extra_curve> curves;

  explicit model(std::uint64_t learned) {
    for (std::uint64_t i = 0; i < samples; ++i) {
      extra.push_back(static_cast<double>(i < learned ? i % classes : guess(i)));
    }
    for (std::uint64_t i = 0; i < 4 * samples; ++i) {
      control.push_back(static_cast<double>(guess(i)));
    }
  }
  std::uint64_t guess(std::uint64_t i) const { return (i + i / classes) % classes; }

  extra_result judge() const {
    return judge_extra_task(options, samples, classes, {extra, control}, earlier, curves).value();
  }
};

std::vector<double> errors(std::size_t count, double shift, std::uint64_t seed) {
  std::vector<double> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(shift + static_cast<double>(random_below({seed, 3}, i, 1000)) / 1000);
  }
  return out;
}

}  // namespace

TEST_CASE("a model that learned the extra samples passes both tests") {
  const auto found = model(300).judge();
  REQUIRE(found.result == outcome::pass);
  REQUIRE(found.hits == 310);
  REQUIRE(found.control_hits == 160);
  REQUIRE(found.needed == 68);
  REQUIRE(found.p_value < 1e-100);
  REQUIRE(found.control_p_value < 1e-50);
  REQUIRE(count(found.findings, outcome::pass, "extra_task.hits") == 1);
  REQUIRE(count(found.findings, outcome::pass, "extra_task.control") == 1);
  REQUIRE(found.findings.size() == 2);
  REQUIRE_FALSE(found.limits.empty());
}

TEST_CASE("a model that did not learn them is rejected, and only while the rules are on") {
  const auto found = model(0).judge();
  REQUIRE(found.result == outcome::reject);
  REQUIRE(found.hits == 40);
  REQUIRE(count(found.findings, outcome::reject, "extra_task.hits") == 1);
  REQUIRE(count(found.findings, outcome::reject, "extra_task.control") == 1);
  const rule_off hits("extra_task.hits");
  REQUIRE(count(model(0).judge().findings, outcome::reject, "extra_task.hits") == 0);
  REQUIRE(model(0).judge().result == outcome::reject);
  const rule_off control("extra_task.control");
  REQUIRE(model(0).judge().result == outcome::inconclusive);
}

TEST_CASE("the binomial test passes with exactly the hits needed") {
  for (std::uint64_t learned = 0; learned < 60; ++learned) {
    const auto found = model(learned).judge();
    const bool enough = found.hits >= 68;
    INFO(found.hits);
    REQUIRE(count(found.findings, outcome::pass, "extra_task.hits") == (enough ? 1 : 0));
    REQUIRE((found.p_value <= 0.01) == enough);
    const bool against = found.hits >= found.needed_against_control;
    REQUIRE(count(found.findings, outcome::pass, "extra_task.control") == (against ? 1 : 0));
  }
}

TEST_CASE("hits that the controls get as well prove nothing") {
  model one(0);
  for (std::size_t i = 0; i < 400; ++i) {
    if (i % 5 == 0) one.extra[i] = static_cast<double>(i % 10);
  }
  for (std::size_t i = 0; i < 1600; ++i) {
    if (i % 5 == 0) one.control[i] = static_cast<double>(i % 10);
  }
  const auto found = one.judge();
  REQUIRE(found.hits >= 68);
  REQUIRE(count(found.findings, outcome::pass, "extra_task.hits") == 1);
  REQUIRE(count(found.findings, outcome::reject, "extra_task.control") == 1);
  REQUIRE(found.result == outcome::reject);
}

TEST_CASE("a model that answers one class never passes") {
  for (const std::uint64_t classes : {2u, 3u, 10u, 100u}) {
    const std::uint64_t samples = (200 + classes - 1) / classes * classes;
    for (std::uint64_t answer = 0; answer < classes; ++answer) {
      const std::vector<double> extra(samples, static_cast<double>(answer)),
          control(4 * samples, static_cast<double>(answer));
      for (const double epsilon : {0.0, 0.03}) {
        extra_task_options options;
        options.epsilon = epsilon;
        options.alpha = 0.5;  // the most that there is
        const auto found = judge_extra_task(options, samples, classes, {extra, control}).value();
        REQUIRE(found.hits == samples / classes);
        REQUIRE(found.result == outcome::reject);
      }
    }
  }
}

TEST_CASE("what a failure means is the client's choice") {
  model one(0);
  one.options.failing = "inconclusive";
  REQUIRE(one.judge().result == outcome::inconclusive);
  REQUIRE(count(one.judge().findings, outcome::reject) == 0);
}

TEST_CASE("answers that are no class are counted and inconclusive") {
  const double bad[] = {std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::infinity(), -1, 10, 2.5};
  for (const double value : bad) {
    for (const bool in_control : {false, true}) {
      model one(300);
      (in_control ? one.control : one.extra)[7] = value;
      const auto found = one.judge();
      INFO(value);
      REQUIRE(found.result == outcome::inconclusive);
      REQUIRE(found.invalid == 1);
      REQUIRE(count(found.findings, outcome::pass) == 0);
      REQUIRE(count(found.findings, outcome::reject) == 0);
      REQUIRE(found.reason.find("1 of 2000") != std::string::npos);
    }
  }
}

TEST_CASE("more submissions than planned are inconclusive, the same answers again are not one") {
  model first(0), second(300), third(400);
  second.options.submissions = third.options.submissions = 2;
  const auto hash = [](const model& one) { return extra_answers{one.extra, one.control}.hash(); };
  second.earlier = {hash(first)};
  REQUIRE(second.judge().submission == 2);
  REQUIRE(second.judge().result == outcome::pass);
  REQUIRE(second.judge().needed > 68);  // half of alpha
  third.earlier = {hash(first), hash(second)};
  REQUIRE(third.judge().submission == 3);
  REQUIRE(third.judge().result == outcome::inconclusive);
  REQUIRE(third.judge().reason.find("alpha is spent. Mix the samples of a new key") !=
          std::string::npos);
  second.earlier = {hash(first), hash(second)};
  REQUIRE(second.judge().submission == 2);
  REQUIRE(second.judge().result == outcome::pass);
}

TEST_CASE("the hash of answers depends on every answer and on which list it is in") {
  const std::vector<double> a{1, 2}, b{1, 3}, c{3};
  const extra_answers one{a, c};
  REQUIRE(one.hash() == extra_answers{a, c}.hash());
  REQUIRE(one.hash() != extra_answers{b, c}.hash());
  REQUIRE(one.hash() != extra_answers{c, a}.hash());
  const std::vector<double> all{1, 2, 3}, none;
  REQUIRE(extra_answers{all, none}.hash() != extra_answers{none, all}.hash());
}

TEST_CASE("lists of the wrong length, few samples and one class are misuse") {
  model one(300);
  one.extra.pop_back();
  REQUIRE_FALSE(judge_extra_task(one.options, 400, 10, {one.extra, one.control}).has_value());
  const std::vector<double> few(190), controls(760);
  REQUIRE_FALSE(judge_extra_task({}, 190, 10, {few, controls}).has_value());
  const std::vector<double> enough(200), their(800);
  REQUIRE_FALSE(judge_extra_task({}, 200, 1, {enough, their}).has_value());
  REQUIRE_FALSE(judge_extra_task({}, 200, 3, {enough, their}).has_value());
}

TEST_CASE("without labels clearly smaller errors pass, equal and larger ones do not") {
  const auto control = errors(800, 0, 1);
  const auto judged = [&](double shift) {
    const auto extra = errors(200, shift, 2);
    return judge_extra_task({}, 200, 0, {extra, control}).value();
  };
  REQUIRE(judged(-0.4).result == outcome::pass);
  REQUIRE(judged(-0.2).result == outcome::inconclusive);  // smaller, by less than least_effect
  REQUIRE(judged(-0.2).p_value < 1e-6);
  REQUIRE(judged(0).result == outcome::reject);
  REQUIRE(judged(0.2).result == outcome::reject);
  auto broken = errors(200, -0.4, 2);
  broken[3] = std::numeric_limits<double>::infinity();
  REQUIRE(judge_extra_task({}, 200, 0, {broken, control}).value().result == outcome::inconclusive);
}

TEST_CASE("hits are counted by grade") {
  const auto found = model(30).judge();
  REQUIRE(found.grades.size() == 3);
  REQUIRE(found.grades[0].grade.name() == "0.6");
  REQUIRE(found.grades[0].samples == 140);
  REQUIRE(found.grades[1].samples == 130);
  REQUIRE(found.grades[0].hits + found.grades[1].hits + found.grades[2].hits == found.hits);
  REQUIRE(found.grades[0].hits >= 10);
}

TEST_CASE("progress is the share at which the counts are most likely") {
  const std::vector<extra_curve> curves{{"0.6", {{0, 0.1}, {0.5, 0.1}, {1, 0.9}}},
                                        {"0.85", {{0, 0.1}, {0.8, 0.1}, {1, 0.5}}}};
  const auto at = [&](std::uint64_t easy, std::uint64_t hard) {
    const std::vector<extra_grade_count> counts{{{600000, false}, 200, easy},
                                                {{850000, false}, 200, hard}};
    return estimate_extra_progress(counts, curves).value();
  };
  const auto found = at(100, 20);  // a half of the easy ones: 0.75 of the training
  REQUIRE(found.share == Approx(0.75).margin(0.01));
  REQUIRE(found.low < 0.75);
  REQUIRE(found.high > 0.75);
  REQUIRE(found.high - found.low < 0.15);
  REQUIRE(found.text.find("about 70 to 80 %") == 0);
  REQUIRE(at(180, 100).share > 0.97);
  REQUIRE(at(180, 100).text.find("at least 95 %") == 0);
  REQUIRE(at(20, 20).text.find("at most 55 %") == 0);
  double last = 0;
  for (std::uint64_t easy = 20; easy <= 180; easy += 10) {
    REQUIRE(at(easy, 20).share >= last);
    last = at(easy, 20).share;
  }
}

TEST_CASE("reference curves are made monotone, and wrong ones are refused") {
  const std::vector<extra_grade_count> counts{{{750000, false}, 200, 100}};
  const std::vector<extra_curve> dented{{"0.75", {{1, 0.9}, {0, 0.1}, {0.5, 0.6}, {0.6, 0.4}}}};
  const auto found = estimate_extra_progress(counts, dented).value();
  REQUIRE(found.share >= 0.5);
  REQUIRE(found.share <= 0.6);
  const auto refused = [&](const std::vector<extra_curve>& curves) {
    return !estimate_extra_progress(counts, curves).has_value();
  };
  REQUIRE(refused({}));
  REQUIRE(refused({{"0.75", {}}}));
  REQUIRE(refused({{"0.6", {{0, 0.1}}}}));
  REQUIRE(refused({{"0.75", {{0, 1.1}}}}));
  REQUIRE(refused({{"0.75", {{-1, 0.1}}}}));
  REQUIRE(refused({{"0.75", {{std::nan(""), 0.1}}}}));
  REQUIRE_FALSE(estimate_extra_progress(counts, dented, 1).has_value());
}

TEST_CASE("a search for regions counts what others share, near copies too") {
  const extra_image shape{4, 4, 1};
  std::vector<std::uint8_t> images(3 * 16);
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<std::uint8_t>(5 * i);
  // The top left 2 x 2 of image 0 is at the bottom right of image 1, and nearly so in image 2.
  const std::size_t from[] = {0, 1, 4, 5};
  for (const std::size_t at : from) {
    images[16 + at + 10] = images[at];
    images[32 + at] = static_cast<std::uint8_t>(images[at] ^ 1);
  }
  region_search search{2, 2, 1, 0, 2, false};
  using list = std::vector<std::uint64_t>;
  REQUIRE(shared_regions(images, shape, search).value().shared == list{0, 0, 0});
  search.anywhere = true;
  REQUIRE(shared_regions(images, shape, search).value().shared == list{1, 1, 0});
  search.dropped_bits = 1;
  REQUIRE(shared_regions(images, shape, search).value().shared == list{1, 1, 1});
  search.least = 3;
  REQUIRE(shared_regions(images, shape, search).value().shared == list{1, 1, 1});
  search.least = 4;
  REQUIRE(shared_regions(images, shape, search).value().shared == list{0, 0, 0});
  const std::vector<std::uint8_t> flat(32, 7);
  search.least = 2;
  REQUIRE(shared_regions(flat, shape, search).value().shared == list{0, 0});
  search.rows = 5;
  REQUIRE_FALSE(shared_regions(images, shape, search).has_value());
  REQUIRE_FALSE(
      shared_regions(std::span(images).first(17), shape, {2, 2, 1, 0, 2, false}).has_value());
}

TEST_CASE("a search for runs of words finds them at any place") {
  const std::vector<std::int64_t> texts{1, 2, 3, 4, 9, 8, 2, 3, 7, 6, 5, 4};
  region_search search;
  search.columns = 2;
  using list = std::vector<std::uint64_t>;
  REQUIRE(shared_regions(texts, 4, search).value().shared == list{0, 0, 0});
  search.anywhere = true;
  REQUIRE(shared_regions(texts, 4, search).value().shared == list{1, 1, 0});
  const std::vector<std::int64_t> repeating{1, 2, 1, 2, 9, 8, 7, 6};  // in itself, not in another
  REQUIRE(shared_regions(repeating, 4, search).value().shared == list{0, 0});
}

// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include <potl/checks/pev.hpp>

#include "fake_run.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

std::set<std::string> reasons(const std::vector<segment_request>& plan) {
  std::set<std::string> out;
  for (const auto& one : plan) out.insert(one.why);
  return out;
}

bool asks(const std::vector<segment_request>& plan, std::uint64_t start, std::uint64_t end) {
  return std::any_of(plan.begin(), plan.end(), [&](const auto& one) {
    return !one.superseded && one.start == start && one.end == end;
  });
}

// What is drawn, without what is looked at beside it.
replay_options drawn_only() {
  replay_options out;
  out.top_q = 0;
  out.reach = 0;
  return out;
}

std::vector<segment_request> plan(const fake_run& run, replay_options options = drawn_only(),
                                  std::uint8_t nonce = 1) {
  return plan_replay(run.view, options, nonce_of(nonce)).value();
}

}  // namespace

TEST_CASE("segments lie between the job's boundaries and cover every step once") {
  const fake_run run(95, 10);
  const auto all = segments_of(run.view);
  REQUIRE(all.size() == 10);
  REQUIRE(all.size() == run.view.agreed.segments());
  REQUIRE(all.front() == segment{0, 10});
  REQUIRE(all.back() == segment{90, 95});
}

TEST_CASE("a job that allows pruning has the long segments, pruned or not") {
  fake_run run;
  run.view.agreed.max_segment = 25;  // two whole distances of checkpoints
  const auto all = segments_of(run.view);
  REQUIRE(all.size() == 5);
  REQUIRE(all.size() == run.view.agreed.segments());
  REQUIRE(all[2] == segment{40, 60});
  run.checkpoints.erase(run.checkpoints.begin() + 3);
  run.link();
  REQUIRE(segments_of(run.view) == all);
}

TEST_CASE("neither flags nor files have a say in what an index of a draw means") {
  fake_run run(1000, 10);
  const auto honest = plan(run);
  SECTION("a state after every step") {
    run.checkpoints.clear();
    for (std::uint64_t step = 0; step <= 1000; ++step) run.checkpoints.push_back({step, 0, {}, 0});
  }
  SECTION("states that are gone") { run.checkpoints.erase(run.checkpoints.begin() + 3); }
  SECTION("epochs that the records make up") {
    for (auto& record : run.records) record.epoch = record.step;
  }
  run.link();
  REQUIRE(segments_of(run.view).size() == 100);
  const auto now = plan(run);
  REQUIRE(now.size() == honest.size());
  for (const auto& one : honest) REQUIRE(asks(now, one.start, one.end));
  const auto losses = plan_pev(run.view, {}, nonce_of(1)).value().losses;
  const fake_run other(1000, 10);
  const auto before = plan_pev(other.view, {}, nonce_of(1)).value().losses;
  REQUIRE(losses.size() == before.size());
  for (std::size_t i = 0; i < losses.size(); ++i) REQUIRE(losses[i].step == before[i].step);
}

TEST_CASE("with the rule off stored states make the segments, as the prover likes") {
  fake_run run;
  run.checkpoints.insert(run.checkpoints.begin() + 1, {3, 0, {}, 0});
  run.link();
  REQUIRE(segments_of(run.view).size() == 10);
  const rule_off off("agreed.segments");
  REQUIRE(segments_of(run.view).size() == 11);
}

TEST_CASE("a step number of the prover's makes nothing longer") {
  for (const std::uint64_t step : {std::uint64_t{1'000'000'000}, std::uint64_t{1} << 63}) {
    fake_run run;
    run.records.back().step = step;
    run.link();
    REQUIRE(segments_of(run.view).size() == 10);
    REQUIRE(plan(run).size() == 10);
    REQUIRE(plan_pev(run.view, {}, nonce_of(1)).value().losses.size() == 4);
    run.view.job_is_own = false;  // then the job's numbers are the prover's too
    run.view.agreed.steps = transcript::max_job_steps;
    run.view.agreed.checkpoint_every = run.view.agreed.max_segment = 1;
    REQUIRE(segments_of(run.view).size() == 100);
  }
}

TEST_CASE("a run that is going on is asked for what it has, out of the same pool") {
  fake_run run(1000, 10);
  const auto whole = plan(run);
  run.records.resize(505);
  run.link();
  REQUIRE(segments_of(run.view).size() == 100);
  for (const auto& one : plan(run)) {
    REQUIRE(one.end <= 500);
    REQUIRE(asks(whole, one.start, one.end));
  }
}

TEST_CASE("what is drawn does not depend on the states that were derived already") {
  fake_run run;
  run.view.agreed.arithmetic = "ord32";
  run.view.agreed.store_every = 50;
  const auto ends = [&] {
    std::vector<segment> out;
    for (const auto& one : plan(run)) out.push_back({one.start, one.end});
    return out;
  };
  const auto all_there = ends();
  run.checkpoints = {{0, 0, {}, 0}, {50, 0, {}, 0}, {100, 0, {}, 0}};
  run.link();
  REQUIRE(segments_of(run.view).size() == 10);
  REQUIRE(ends() == all_there);
  run.checkpoints.insert(run.checkpoints.begin() + 1, {20, 0, {}, 0});
  run.link();
  REQUIRE(ends() == all_there);
}

TEST_CASE("first and last segment are always asked for, and as many random ones as wanted") {
  const fake_run run(1000, 10);
  const auto requests = plan(run);
  REQUIRE(requests.size() == 14);
  REQUIRE(asks(requests, 0, 10));
  REQUIRE(asks(requests, 990, 1000));
  REQUIRE(std::is_sorted(requests.begin(), requests.end(),
                         [](const auto& a, const auto& b) { return a.start < b.start; }));
}

TEST_CASE("the draw depends on the nonce and on the commitment and on nothing else") {
  fake_run run(1000, 10);
  const auto starts = [](const auto& requests) {
    std::vector<std::uint64_t> out;
    for (const auto& one : requests) out.push_back(one.start);
    return out;
  };
  REQUIRE(starts(plan(run, drawn_only(), 1)) == starts(plan(run, drawn_only(), 1)));
  REQUIRE(starts(plan(run, drawn_only(), 1)) != starts(plan(run, drawn_only(), 2)));
  const auto before = starts(plan(run, drawn_only(), 1));
  run.view.commitment = nonce_of(9);
  REQUIRE(starts(plan(run, drawn_only(), 1)) != before);
}

TEST_CASE("a run with fewer segments than samples is replayed as a whole") {
  const fake_run run(50, 10);
  REQUIRE(plan(run).size() == 5);
}

TEST_CASE("a run of one segment is replayed once, as its final segment") {
  const fake_run run(10, 10);
  REQUIRE(reasons(plan(run)) == std::set<std::string>{"final"});
}

TEST_CASE("earlier challenges are repeated beside the new one") {
  const fake_run run(1000, 10);
  replay_options options = drawn_only();
  const auto earlier = plan(run, options, 7);
  options.repeat = {nonce_of(7).hex()};
  const auto both = plan(run, options, 1);
  for (const auto& one : earlier) REQUIRE(asks(both, one.start, one.end));
  for (const auto& one : plan(run)) REQUIRE(asks(both, one.start, one.end));
  REQUIRE(reasons(both).count("earlier challenge") == 1);
}

TEST_CASE("an earlier challenge of another size is repeated with its own") {
  const fake_run run(1000, 10);
  replay_options options = drawn_only();
  options.samples = 40;
  const auto earlier = plan(run, options, 7);
  options.samples = 2;
  options.repeat = {nonce_of(7).hex() + ":40"};
  for (const auto& one : earlier) REQUIRE(asks(plan(run, options), one.start, one.end));
}

TEST_CASE("what is no nonce is refused by name") {
  const fake_run run;
  replay_options options = drawn_only();
  for (const char* text : {"", "12", "zz"}) {
    options.repeat = {text};
    const auto refused = plan_replay(run.view, options, nonce_of(1));
    REQUIRE(refused.why().code == errc::usage);
    REQUIRE(refused.why().message.find("repeat") != std::string::npos);
  }
  for (const char* number : {":x", ":", ":4x", ":-1", ":99999999999999999999"}) {
    options.repeat = {nonce_of(7).hex() + number};
    REQUIRE_FALSE(plan_replay(run.view, options, nonce_of(1)).has_value());
  }
}

TEST_CASE("superseded steps are always asked for, from the branch they started in") {
  fake_run run;
  run.ranges = {{2, 40, 46, 1}};
  run.link();
  const auto requests = plan(run);
  const auto at = std::find_if(requests.begin(), requests.end(),
                               [](const auto& one) { return one.superseded; });
  REQUIRE(at != requests.end());
  REQUIRE(at->start == 40);
  REQUIRE(at->end == 46);
  REQUIRE(at->branch == 2);
  REQUIRE(at->start_branch == 1);
}

TEST_CASE("superseded segments take no repeats from those whose noise speaks for others") {
  fake_run run;
  const auto repeated = [&] {
    std::vector<std::uint64_t> starts;
    for (const auto& one : plan(run)) {
      if (one.noise_repeats > 0) starts.push_back(one.start);
    }
    return starts;
  };
  const auto before = repeated();
  REQUIRE(before.size() > 1);
  run.ranges = {{0, 1, 3, 0}, {1, 2, 4, 0}};
  run.link();
  REQUIRE(repeated() == before);
}

TEST_CASE("in exact arithmetic only the first step is asked for that was recorded in two ways") {
  fake_run run;
  run.view.agreed.arithmetic = "ord32";
  run.ranges = {{0, 40, 46, 0}, {1, 42, 45, 0}};
  const auto changed = [&](std::size_t at,
                           const std::function<void(transcript::step_record&)>& how) {
    run.superseded.clear();
    for (const std::size_t step : {41U, 42U, 43U, 44U, 45U, 46U, 43U, 44U, 45U})
      run.superseded.push_back(run.records[step - 1]);
    if (at < run.superseded.size()) how(run.superseded[at]);
    run.link();
    replay_options options = drawn_only();
    options.samples = 0;
    std::vector<segment_request> found;
    for (const segment_request& one : plan(run, options))
      if (one.why == "superseded") found.push_back(one);
    return found;
  };
  REQUIRE(changed(99, {}).empty());
  // A resume makes these different, or another machine.
  REQUIRE(changed(6, [](auto& step) { step.flags ^= 12; }).empty());
  REQUIRE(changed(6, [](auto& step) { ++step.duration_ns; }).empty());
  REQUIRE(changed(6, [](auto& step) { ++step.random_draws; }).empty());
  for (const std::function<void(transcript::step_record&)>& how :
       std::vector<std::function<void(transcript::step_record&)>>{
           [](auto& step) { step.state = nonce_of(9); },
           [](auto& step) { step.loss += 1; },
           [](auto& step) { step.rates.at(0) += 1; },
           [](auto& step) { step.sample_ids = nonce_of(9); },
           [](auto& step) { step.flags ^= 1; },
           [](auto& step) { step.flags ^= 2; },
           [](auto& step) {
             step.rounding = transcript::rounding_reference{nonce_of(9), 1};
           },
       }) {
    const auto found = changed(7, how);  // step 44 of branch 1
    REQUIRE(found.size() == 2);
    const auto replaced =
        std::find_if(found.begin(), found.end(), [](const auto& one) { return one.superseded; });
    REQUIRE(replaced != found.end());
    REQUIRE(replaced->start == 42);
    REQUIRE(replaced->end == 44);
    REQUIRE(replaced->branch == 1);
    const segment_request& kept = replaced == found.begin() ? found[1] : found[0];
    REQUIRE_FALSE(kept.superseded);
    REQUIRE(kept.start < 44);
    REQUIRE(kept.end >= 44);
  }
  // The earliest counts, whichever branch it is in; what is missing is different.
  const auto ends = [&](std::size_t other) {
    const auto found = changed(other, [&](auto& step) {
      ++step.loss;
      ++run.superseded[4].loss;  // step 45 of branch 0
    });
    return std::find_if(found.begin(), found.end(), [](const auto& one) { return one.superseded; })
        ->end;
  };
  REQUIRE(ends(1) == 42);  // the same branch
  REQUIRE(ends(6) == 43);  // the other one
  REQUIRE(ends(5) == 45);
  REQUIRE(asks(changed(3, [](auto& step) { ++step.loss; }), 40, 50));
  REQUIRE(asks(changed(3, [](auto& step) { step.step = 0; }), 40, 50));
}

TEST_CASE("superseded steps that are none are not asked for") {
  fake_run run;
  run.ranges = {{1, 40, 40, 0}, {1, 46, 40, 0}};
  run.link();
  REQUIRE(reasons(plan(run)).count("superseded") == 0);
}

TEST_CASE("with its rule off the last segment is one like the others") {
  const fake_run run(1000, 10);
  replay_options options = drawn_only();
  options.samples = 0;
  REQUIRE(asks(plan(run, options), 990, 1000));
  const rule_off off("replay.final_segment");
  REQUIRE_FALSE(asks(plan(run, options), 990, 1000));
}

TEST_CASE("with the rule off nothing is drawn at random, and the largest updates remain") {
  const fake_run run(1000, 10);
  const rule_off off("replay.random_segments");
  REQUIRE(reasons(plan(run)) == std::set<std::string>{"final", "first", "top-q"});
}

TEST_CASE("with the rule off superseded steps are not asked for") {
  fake_run run;
  run.ranges = {{0, 40, 46, 0}};
  run.link();
  REQUIRE(reasons(plan(run)).count("superseded") == 1);
  const rule_off off("transcript.resume");
  REQUIRE(reasons(plan(run)).count("superseded") == 0);
}

TEST_CASE("repeats for the noise are asked for unless bits must be equal") {
  fake_run run;
  REQUIRE(plan(run).front().noise_repeats == 2);
  replay_options exact = drawn_only();
  exact.tolerance = "exact";
  REQUIRE(plan(run, exact).front().noise_repeats == 0);
  run.view.agreed.arithmetic = "ord32";
  REQUIRE(plan(run).front().noise_repeats == 0);
}

TEST_CASE("a run without steps has nothing to replay") {
  fake_run run;
  run.records.clear();
  run.link();
  REQUIRE(plan(run).empty());
}

namespace {

// Of a job whose rates follow a metric, with losses that fall and are about a tenth off.
void follow_a_metric(fake_run& run) {
  run.view.agreed.rates.clear();
  for (auto& record : run.records) {
    const double noise = record.step % 3 == 0 ? 1.1 : 1.0;
    record.loss = noise * 1000 / static_cast<double>(100 + record.step);
  }
}

std::vector<segment> steering(const fake_run& run, std::uint64_t samples = 0) {
  replay_options options;
  options.top_q = 0;
  options.samples = samples;
  std::vector<segment> out;
  for (const segment_request& one : plan(run, options)) {
    if (one.why == "log") out.push_back({one.start, one.end});
  }
  return out;
}

bool has(const std::vector<segment>& list, const segment& wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

}  // namespace

TEST_CASE("the segment that says most often that an update was skipped is replayed") {
  fake_run run(1000, 10);
  REQUIRE(steering(run).empty());
  run.records[504].flags = run.records[704].flags = run.records[708].flags = 1;
  REQUIRE(steering(run) == std::vector<segment>{{700, 710}});
  run.records[991].flags = run.records[992].flags = run.records[993].flags = 1;
  REQUIRE(steering(run) == std::vector<segment>{{700, 710}});  // the last is replayed anyway
  REQUIRE(asks(plan(run), 700, 710) == false);                 // reach=0 looks at nothing
}

TEST_CASE("losses move rates that follow a metric: the most unusual ones are replayed") {
  fake_run run(1000, 10);
  follow_a_metric(run);
  REQUIRE(steering(run).size() == 2);
  REQUIRE_FALSE(has(steering(run), {500, 510}));
  run.records[505].loss -= 5;  // not the lowest of the run
  REQUIRE(has(steering(run), {500, 510}));
  run.records[505].loss += 10;
  REQUIRE(has(steering(run), {500, 510}));
  run.records[505].loss -= 5;
  for (std::size_t i = 500; i < 510; ++i) run.records[i].loss -= 5;
  REQUIRE(has(steering(run), {500, 510}));
  run.records[505].loss = -std::numeric_limits<double>::infinity();
  REQUIRE(has(steering(run), {500, 510}));
  run.records[505].loss = run.records[504].loss;
  run.view.agreed.rates = {{1000, {0.1}}};
  REQUIRE(steering(run).empty());
}

TEST_CASE("the first step that is said to be not finite is replayed") {
  fake_run run(1000, 10);
  for (const std::size_t i : {405u, 505u}) {
    run.records[i].loss = std::numeric_limits<double>::quiet_NaN();
  }
  REQUIRE(steering(run) == std::vector<segment>{{400, 410}});
  run.records[305].flags = 2;  // its gradients
  REQUIRE(steering(run) == std::vector<segment>{{300, 310}});
  run.records[305].flags = 3;  // and it was skipped: no others are
  REQUIRE(steering(run) == std::vector<segment>{{300, 310}, {400, 410}});
}

TEST_CASE("late losses are small, and are compared with those around them too") {
  fake_run run(1000, 10);
  follow_a_metric(run);
  for (std::size_t i = 0; i < 100; ++i) run.records[i].loss *= i % 2 == 0 ? 3 : 1;
  for (std::size_t i = 500; i < 1000; ++i) run.records[i].loss *= 1e-3;
  run.records[805].loss = -0.01;
  REQUIRE(has(steering(run), {800, 810}));
  run.records[405].loss = run.records[805].loss = std::numeric_limits<double>::quiet_NaN();
  REQUIRE(has(steering(run), {800, 810}));
}

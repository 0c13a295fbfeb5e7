// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <potl/numeric/detail/distance.hpp>

#include "fake_run.hpp"
#include "run_fixture.hpp"

using namespace potl;
using namespace potl::checks;
using potl_test::floats;
using potl_test::tensor_of;
using namespace potl::transcript;

namespace {

// Stretches whose `numbers` move so far; the others move 1.
std::function<double(const segment&)> jumps(std::set<std::uint64_t> starts, double by) {
  return [starts = std::move(starts), by](const segment& one) {
    return starts.count(one.start) != 0 ? by : 1.0;
  };
}

std::vector<segment_request> plan(const fake_run& run, const replay_options& options) {
  return plan_replay(run.view, options, nonce_of(1)).value();
}

std::vector<segment> asked(const fake_run& run, const replay_options& options, const char* why) {
  std::vector<segment> out;
  for (const auto& one : plan(run, options)) {
    if (one.why == why) out.push_back({one.start, one.end});
  }
  return out;
}

replay_options only_reach(std::uint64_t samples = 12) {
  replay_options out;
  out.samples = samples;
  out.top_q = 0;
  out.reach = 10;
  return out;
}

// Where the draw of nonce 1 does not look.
std::vector<std::uint64_t> undrawn(const fake_run& run, const replay_options& options) {
  std::set<std::uint64_t> drawn;
  for (const auto& one : plan(run, options)) drawn.insert(one.start);
  std::vector<std::uint64_t> out;
  for (const segment& one : segments_of(run.view)) {
    if (drawn.count(one.start) == 0) out.push_back(one.start);
  }
  return out;
}

// The segments of ten steps that begin there, each with the one before it, but for those drawn.
std::vector<segment> with_those_before(const fake_run& run, const std::set<std::uint64_t>& starts) {
  std::vector<segment> out;
  for (const std::uint64_t start : undrawn(run, only_reach())) {
    if (starts.count(start) + starts.count(start + 10) > 0) out.push_back({start, start + 10});
  }
  return out;
}

screening screened_of(const fake_run& run, usual_of whose = usual_of::all_stretches) {
  return screen(run.view, *run.view.moved(), whose);
}

segment_measurement answered(std::uint64_t start, std::uint64_t end,
                             measured status = measured::ok) {
  segment_measurement out;
  out.request.start = start;
  out.request.end = end;
  out.status = status;
  out.digest_equal = true;
  return out;
}

// With a draw so large that the median counts.
finding judged_reach(const fake_run& run, std::vector<segment_measurement> all) {
  all.push_back(answered(0, stretches_of(run.view).front().end));
  return judge_reach(run.view, 10, 98, 98, all);
}

// A state of one parameter tensor and, if there is any, momentum.
state state_of(const std::vector<float>& weights, const std::vector<float>& momentum,
               snapshot_memory& memory, const std::string& key = "momentum_buffer") {
  const auto in = [](const std::string& name, state_value value) {
    state_map out;
    out.push_back({name, std::move(value)});
    return state_value{std::move(out)};
  };
  state_map tree;
  tree.push_back({std::string("model"), in("parameters", in("w", {tensor_of(weights)}))});
  if (!momentum.empty()) {
    tree.push_back({std::string("optimizers"), in("0", in(key, {tensor_of(momentum)}))});
  }
  return capture(state_value{std::move(tree)}, memory).value();
}

}  // namespace

TEST_CASE("a movement counts every element, and what stays as it was not at all") {
  const auto both = [](const std::vector<float>& a, const std::vector<float>& b) {
    return numeric::movement(dtype::f32, floats(a), floats(b));
  };
  const auto of = [&](const std::vector<float>& a, const std::vector<float>& b) {
    const numeric::moved by = both(a, b);
    REQUIRE((by.came == 0 && by.went == 0));
    return by.numbers;
  };
  std::vector<float> zeros(1000), far(1000);
  far[3] = 3;
  far[999] = -4;
  REQUIRE(of(zeros, far) == 5);
  REQUIRE(of(far, zeros) == 5);
  REQUIRE(of(far, far) == 0);
  REQUIRE(of({}, far) == 5);
  REQUIRE(of(far, {}) == 5);
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::nanf("");
  REQUIRE(of({1, -inf, nan}, {1, -inf, nan}) == 0);
  REQUIRE(std::isnan(of({1, 2}, {1, nan})));
  REQUIRE(std::isnan(both({1, nan}, {1, inf}).numbers));
  const numeric::moved apart = both({0, 7, -inf, inf, nan, 1}, {0, inf, 24, inf, nan, 1});
  REQUIRE(apart.numbers == 25);
  REQUIRE((apart.came == 1 && apart.went == 1));
  const numeric::moved turned = both({-inf, -inf, 0, 0, 0}, {inf, inf, inf, inf, 0});
  REQUIRE((turned.came == 2 && turned.went == Approx(std::sqrt(2.0))));
}

TEST_CASE("what lies further than is usual is asked for with what led there, and nothing else") {
  fake_run run(1000, 10, 100);
  const auto free = undrawn(run, only_reach());
  const auto both = with_those_before(run, {free[5], free[20]});
  REQUIRE(both.size() > 2);
  run.jump = jumps({free[5], free[20]}, 10.5);
  REQUIRE(asked(run, only_reach(), "reach") == both);
  run.jump = jumps({free[5], free[20]}, 9.5);
  REQUIRE(asked(run, only_reach(), "reach").empty());
}

TEST_CASE("a state that cannot be compared is asked for") {
  fake_run run(1000, 10, 100);
  const auto free = undrawn(run, only_reach());
  const auto both = with_those_before(run, {free[7]});
  run.jump = jumps({free[7]}, std::nan(""));
  REQUIRE(asked(run, only_reach(), "reach") == both);
}

TEST_CASE("with the rule off, or a reach of 0, nothing is read and nothing asked for") {
  fake_run run(1000, 10, 100);
  run.jump = jumps({undrawn(run, only_reach())[5]}, 100);
  replay_options options = only_reach();
  run.readings = 0;
  options.reach = 0;
  REQUIRE(asked(run, options, "reach").empty());
  const rule_off off("replay.reach");
  REQUIRE(asked(run, only_reach(), "reach").empty());
  REQUIRE(run.readings == 0);
  REQUIRE(count(judge_replay(run.view, only_reach(), nonce_of(1), {}).value(),
                outcome::inconclusive, "replay.reach") == 0);
}

TEST_CASE("no more segments than samples are added, the furthest first") {
  fake_run run(1000, 10, 100);
  const replay_options options = only_reach(3);
  const auto free = undrawn(run, options);
  run.jump = [&](const segment& one) {
    for (std::size_t i = 0; i < 6; ++i) {
      if (one.start == free[i]) return 20.0 + static_cast<double>(i);
    }
    return 1.0;
  };
  REQUIRE(asked(run, options, "reach") == std::vector<segment>{{free[3], free[3] + 10},
                                                               {free[4], free[4] + 10},
                                                               {free[5], free[5] + 10}});
}

TEST_CASE("room is asked for once where far movements follow each other") {
  fake_run run(1000, 10, 100);
  run.jump = jumps({500, 510}, 50);
  REQUIRE(judged_reach(run, {}).reason.find("samples=3 makes room") != std::string::npos);
}

TEST_CASE("movements beyond reach are inconclusive until they are replayed") {
  fake_run run(1000, 10, 100);
  run.jump = jumps({500, 700}, 50);
  const finding open = judged_reach(run, {});
  REQUIRE(open.result == outcome::inconclusive);
  REQUIRE(open.reason.ends_with(
      ": replay more (samples=4 makes room for all), or allow more (reach=) where honest "
      "trainings move so"));
  // With what led there: true steps go far from a false state.
  const auto with = [&](const segment_measurement& one) {
    return judged_reach(run, {answered(490, 500), answered(500, 510), answered(690, 700), one});
  };
  REQUIRE(with(answered(500, 510)).result == outcome::inconclusive);
  REQUIRE(with(answered(700, 710, measured::verifier_error)).result == outcome::inconclusive);
  auto replaced = answered(700, 710);
  replaced.request.superseded = true;
  REQUIRE(with(replaced).result == outcome::inconclusive);
  REQUIRE(judged_reach(run, {answered(490, 500), answered(500, 510), answered(700, 710)}).result ==
          outcome::inconclusive);
  const finding pass = with(answered(700, 710));
  REQUIRE(pass.result == outcome::pass);
  REQUIRE(pass.statistic == 1);
  REQUIRE(pass.threshold == 10);
}

TEST_CASE("nothing is within reach before the first stretch was replayed as a whole") {
  fake_run run(1000, 10, 100);
  run.view.agreed.arithmetic = "ord32";
  run.view.agreed.store_every = 50;
  const auto judged = [&](std::vector<segment_measurement> all) {
    return judge_reach(run.view, 10, 98, 98, all).result;
  };
  REQUIRE(judged({}) == outcome::inconclusive);
  REQUIRE(judged({answered(0, 10), answered(500, 550)}) == outcome::inconclusive);
  REQUIRE(judged({answered(0, 20), answered(20, 50, measured::verifier_error)}) ==
          outcome::inconclusive);
  REQUIRE(judged({answered(0, 20), answered(20, 50)}) == outcome::pass);
  REQUIRE(asked(run, only_reach(), "first") == std::vector<segment>{{0, 10}, {0, 50}});
  replay_options none = only_reach();
  none.reach = 0;
  REQUIRE(asked(run, none, "first") == std::vector<segment>{{0, 10}});
}

TEST_CASE("the judge asks nobody's word for what was screened") {
  fake_run run(1000, 10, 100);
  run.jump = jumps({500}, 50);
  std::vector<segment_measurement> all;
  for (const auto& one : plan(run, only_reach())) {
    if (one.why != "reach") all.push_back(answered(one.start, one.end));
  }
  const auto found = judge_replay(run.view, only_reach(), nonce_of(1), all).value();
  REQUIRE(count(found, outcome::inconclusive, "replay.reach") == 1);
}

TEST_CASE("without movements nothing is said to be within reach") {
  fake_run run;
  run.view.moved = nullptr;
  REQUIRE(judged_reach(run, {}).result == outcome::inconclusive);
}

TEST_CASE("limits of the weights follow the agreed rates") {
  fake_run run(1000, 10, 100);
  run.view.agreed.rates = {{500, {0.1}}, {500, {0.01}}};
  run.view.agreed.rate_ends = {500, 1000};
  run.jump = [](const segment& one) {
    return one.start < 500 ? 1.0 : one.start == 700 ? 2.0 : 0.1;
  };
  const auto seen = screened_of(run).stretches;
  REQUIRE(seen[10].ratio == Approx(1));
  REQUIRE(seen[60].ratio == Approx(1));
  REQUIRE(seen[70].ratio == Approx(20));
  REQUIRE(seen[70].tensor == "model/parameters/w");
}

TEST_CASE("of rates below zero the size counts") {
  fake_run run(1000, 10, 100);
  run.view.agreed.rates = {{500, {-0.1}}, {250, {-0.01}}, {250, {0.1}}};
  run.view.agreed.rate_ends = {500, 750, 1000};
  run.jump = [](const segment& one) { return one.start < 500 || one.start >= 750 ? 1.0 : 0.1; };
  const auto seen = screened_of(run).stretches;
  REQUIRE(seen[10].ratio == Approx(1));
  REQUIRE(seen[60].ratio == Approx(1));
  REQUIRE(seen[90].ratio == Approx(1));
}

TEST_CASE("logged rates of a metric tighten limits, and never loosen them") {
  fake_run run(1000, 10, 100);
  run.view.agreed.rates.clear();
  for (auto& record : run.records) {
    if (record.step > 700 && record.step <= 710) record.rates = {1e9};
    if (record.step > 800) record.rates = {0.01};
  }
  run.link();
  run.jump = jumps({700}, 50);
  const auto seen = screened_of(run).stretches;
  REQUIRE(seen[70].ratio == Approx(50));
  REQUIRE(seen[90].ratio == Approx(10));
}

TEST_CASE("the first segment says what is usual where it moved more than half of the others") {
  fake_run run(1000, 10, 100);
  run.jump = jumps({0, 300}, 8);
  REQUIRE(screened_of(run).stretches[30].ratio == Approx(1));
}

TEST_CASE("the first stretch says what is usual where the job stores some states only") {
  fake_run run(1000, 10, 100);
  run.view.agreed.arithmetic = "ord32";
  run.view.agreed.store_every = 50;
  run.jump = jumps({0, 300}, 8);
  const auto seen = screened_of(run).stretches;
  REQUIRE(seen.size() == 20);
  REQUIRE(seen[0].ratio == Approx(1));
  REQUIRE(seen[6].ratio == Approx(1));
}

TEST_CASE("where half of the stretches can be false, the first alone says what is usual") {
  // With 53 of 248 not drawn at 95 %, half of 106.
  REQUIRE(usual_by(107, 248, 12) == usual_of::all_stretches);
  REQUIRE(usual_by(106, 248, 12) == usual_of::first_stretch);
  REQUIRE(usual_by(1, 248, 248) == usual_of::all_stretches);
  REQUIRE(usual_by(250, 248, 0) == usual_of::first_stretch);

  fake_run run(1000, 10, 100);
  run.view.agreed.arithmetic = "ord32";
  run.view.agreed.store_every = 50;
  run.jump = [](const segment& one) { return one.start >= 300 ? 30.0 : 1.0; };
  REQUIRE(screened_of(run).stretches[10].ratio == Approx(1));
  REQUIRE(screened_of(run, usual_of::first_stretch).stretches[10].ratio == Approx(30));
  REQUIRE_FALSE(asked(run, only_reach(12), "reach").empty());
  REQUIRE(asked(run, only_reach(90), "reach").empty());
  const std::vector first{answered(0, 50)};
  REQUIRE(judge_reach(run.view, 10, 98, 12, first).result == outcome::inconclusive);
  REQUIRE(judge_reach(run.view, 10, 98, 90, first).result == outcome::pass);
}

TEST_CASE("a tensor that seldom moves is measured by others of its kind") {
  fake_run run(100, 10);
  movements moved;
  moved.tensors = {{"a", "parameters", 4}, {"b", "parameters", 16}, {"c", "buffers/x", 4}};
  for (const segment& one : stretches_of(run.view))
    moved.stretches.push_back({one, true, {1, 0, 0}});
  moved.stretches[6].moved = {1, 6, 0};
  moved.stretches[8].moved = {1, 0, 1e-9};
  const auto seen = screen(run.view, moved, usual_of::all_stretches).stretches;
  REQUIRE(seen[6].ratio == Approx(3));
  REQUIRE(seen[6].tensor == "b");
  REQUIRE(std::isinf(seen[8].ratio));
}

TEST_CASE("an infinity that goes lets no number move further, and masks still open and close") {
  const float inf = std::numeric_limits<float>::infinity();
  fake_run run(100, 10);
  snapshot_memory memory;
  // The least values so far, a mask, and what stands still, which one false state has elsewhere.
  const auto ratio_of = [&](const std::vector<float>& least, const std::vector<float>& mask,
                            float still = 0) {
    const auto load = [&](std::uint64_t step) {
      const auto at = static_cast<float>(step / 10);
      const bool even = step / 10 % 2 == 0;
      std::vector<float> values(3, step == 0 ? inf : -at);
      std::vector<float> shown{0, even ? 0 : -inf, even ? -inf : 0};
      if (step == 50 && !least.empty()) values = least;
      if (step == 50 && !mask.empty()) shown = mask;
      const std::vector<float> other{step == 50 ? still : 0};
      state_map buffers;
      buffers.push_back({std::string("least"), {tensor_of(values)}});
      buffers.push_back({std::string("mask"), {tensor_of(shown)}});
      buffers.push_back({std::string("other"), {tensor_of(other)}});
      const auto in = [](const std::string& name, state_map value) {
        state_map out;
        out.push_back({name, {std::move(value)}});
        return out;
      };
      return capture(state_value{in("model", in("buffers", std::move(buffers)))}, memory);
    };
    const movements moved = measure_movements(stretches_of(run.view), load);
    return screen(run.view, moved, usual_of::first_stretch).stretches[4].ratio;
  };
  REQUIRE(ratio_of({}, {}) == Approx(1));
  REQUIRE(ratio_of({-5, -5, -90}, {}) == Approx(86 / std::sqrt(3.0)).epsilon(0.01));
  REQUIRE(ratio_of({}, {-inf, -inf, -inf}) == Approx(std::sqrt(2.0)));
  // The least values came from infinity in the first stretch, which is no reason to go back.
  REQUIRE(std::isinf(ratio_of({inf, -5, -5}, {})));
  REQUIRE(std::isinf(ratio_of({}, {0, -inf, 1})));
  REQUIRE(std::isinf(ratio_of({}, {}, -inf)));
}

TEST_CASE("squares of gradients are measured by their roots") {
  fake_run run(100, 10);
  movements moved;
  moved.tensors = {{"a", "optimizers/exp_avg_sq", 4}, {"b", "optimizers/exp_avg", 4}};
  for (const segment& one : stretches_of(run.view)) moved.stretches.push_back({one, true, {1, 1}});
  moved.stretches[6].moved = {81, 1};
  moved.stretches[8].moved = {1, 8};
  const auto seen = screen(run.view, moved, usual_of::all_stretches).stretches;
  REQUIRE(seen[6].ratio == Approx(9));
  REQUIRE(seen[6].tensor == "a");
  REQUIRE(seen[8].ratio == Approx(8));
}

TEST_CASE("stretches lie between states that the job has stored, derived ones aside") {
  fake_run run(95, 10);
  REQUIRE(stretches_of(run.view) == segments_of(run.view));
  run.view.agreed.arithmetic = "ord32";
  run.view.agreed.store_every = 40;
  REQUIRE(stretches_of(run.view) == std::vector<segment>{{0, 40}, {40, 80}, {80, 95}});
  run.records.resize(85);
  run.link();
  REQUIRE(stretches_of(run.view) == std::vector<segment>{{0, 40}, {40, 80}});
}

TEST_CASE("a stretch is replayed as one, and paid for by its segments") {
  fake_run run(1000, 10, 100);
  run.view.agreed.arithmetic = "ord32";
  run.view.agreed.store_every = 50;
  run.jump = jumps({100, 300, 500}, 50);
  REQUIRE(asked(run, only_reach(15), "reach") ==
          std::vector<segment>{{50, 100}, {100, 150}, {300, 350}});
  // One is always affordable, with what led there.
  REQUIRE(asked(run, only_reach(3), "reach") == std::vector<segment>{{50, 100}, {100, 150}});
}

TEST_CASE("a stretch of which a part is replayed anyway is paid for as a whole") {
  fake_run run(1000, 10, 100);
  run.view.agreed.arithmetic = "ord32";
  run.view.agreed.store_every = 50;
  run.jump = jumps({500, 950}, 50);  // the last segment is replayed in any case
  const rule_off off("replay.random_segments");
  const auto among = [&](std::uint64_t samples) {
    return asked(run, only_reach(samples), "reach");
  };
  REQUIRE(among(15) == std::vector<segment>{{450, 500}, {500, 550}, {950, 1000}});
  REQUIRE(among(14) == std::vector<segment>{{450, 500}, {500, 550}});
}

TEST_CASE("a stretch that is replayed anyway is not asked for again") {
  fake_run run(100, 10, 100);
  run.view.agreed.arithmetic = "ord32";
  run.view.agreed.store_every = 50;
  run.jump = jumps({50}, 50);
  REQUIRE(asked(run, only_reach(12), "reach").empty());
  REQUIRE(asked(run, only_reach(12), "first") == std::vector<segment>{{0, 10}});
  std::vector<segment_measurement> all;
  for (const auto& one : plan(run, only_reach(12))) {
    all.push_back(answered(one.start, one.end));
  }
  REQUIRE(judge_reach(run.view, 10, 8, 8, all).result == outcome::pass);
}

TEST_CASE("a stretch of which a part was replayed is not covered") {
  fake_run run(1000, 10, 100);
  run.view.agreed.arithmetic = "ord32";
  run.view.agreed.store_every = 50;
  run.jump = jumps({100}, 50);
  const auto judged = [&](std::vector<segment_measurement> all) {
    all.push_back(answered(50, 100));
    return judged_reach(run, std::move(all)).result;
  };
  REQUIRE(judged({answered(100, 130)}) == outcome::inconclusive);
  REQUIRE(judged({answered(110, 150)}) == outcome::inconclusive);
  REQUIRE(judged({answered(100, 120), answered(130, 150)}) == outcome::inconclusive);
  REQUIRE(judged({answered(130, 150), answered(100, 130)}) == outcome::pass);
}

TEST_CASE("the furthest stretches of each epoch are added, a tenth of the samples in all") {
  fake_run run(1000, 10, 100);
  replay_options options;
  options.reach = 0;
  options.samples = 12;
  run.jump = [](const segment& one) {
    return one.start % 100 == 30 ? 2 + static_cast<double>(one.start) / 1000 : 1.0;
  };
  // And, of as many, what led to them: true steps go further than the momentum that carries them.
  const auto split = [&] {
    std::vector<segment> furthest, before;
    for (const segment& one : asked(run, options, "top-q")) {
      REQUIRE((one.start % 100 == 30 || one.start % 100 == 20));
      (one.start % 100 == 30 ? furthest : before).push_back(one);
    }
    return std::pair(furthest, before);
  };
  const auto [furthest, before] = split();
  REQUIRE(furthest.size() == 2);
  REQUIRE(before.size() == 2);
  REQUIRE(before[1].end == 930);  // also where the furthest of all is drawn anyway
  options.samples = 80;
  REQUIRE(split().first.size() <= 8);
  REQUIRE(split().second.size() <= 8);
  options.top_q = 0;
  REQUIRE(asked(run, options, "top-q").empty());
}

TEST_CASE("what led to a state is the last to have moved each thing that moved there") {
  movements moved;
  moved.tensors = {{"model/parameters/v", "parameters", 1},
                   {"model/parameters/w", "parameters", 1}};
  const auto add = [&](double v, double w) {
    const std::uint64_t from = moved.stretches.size();
    moved.stretches.push_back({{from, from + 1}, true, {v, w}});
  };
  for (const double w : {1., 1., 0., 0., 1., 1.}) add(1, w);
  using all = std::vector<segment>;
  REQUIRE(what_led_to(moved, {0, 1}).empty());
  REQUIRE(what_led_to(moved, {3, 4}) == all{{2, 3}});
  REQUIRE(what_led_to(moved, {4, 5}) == all{{3, 4}, {1, 2}});
  REQUIRE(what_led_to(moved, {5, 6}) == all{{4, 5}});
  // An infinity that comes or goes is a movement, too, and of what cannot be read nobody knows.
  moved.stretches[2].came = {0, 1};
  REQUIRE(what_led_to(moved, {4, 5}) == all{{3, 4}, {2, 3}});
  moved.stretches[2] = {{2, 3}, false, {}};
  REQUIRE(what_led_to(moved, {4, 5}) == all{{3, 4}, {2, 3}});
  // Nothing led to what moves for the first time.
  for (auto& one : moved.stretches) one = {one.where, true, {1, one.where.start == 4 ? 1. : 0.}};
  REQUIRE(what_led_to(moved, {4, 5}) == all{{3, 4}});
}

TEST_CASE("what rested before it went far is replayed with where it moved last") {
  fake_run run(1000, 10, 100);
  const auto made = run.view.moved;
  run.view.moved = [&] {
    auto out = std::make_shared<movements>(*made());
    out->tensors.push_back({"model/parameters/v", "parameters", 4});
    for (std::size_t s = 0; s < out->stretches.size(); ++s) {
      out->stretches[s].moved.push_back(s == 50 ? 50 : s == 48 || s == 49 ? 0 : 1);
    }
    return std::shared_ptr<const movements>(std::move(out));
  };
  const auto starts = [&] {
    std::set<std::uint64_t> out;
    for (const auto& one : plan(run, only_reach())) out.insert(one.start);
    return out;
  };
  for (const std::uint64_t start : {470U, 490U, 500U}) REQUIRE(starts().count(start) == 1);
  // More of these than there is room for leave an honest run decided.
  REQUIRE(judged_reach(run, {answered(490, 510)}).result == outcome::pass);
  REQUIRE(judged_reach(run, {answered(470, 480), answered(500, 510)}).result ==
          outcome::inconclusive);
  REQUIRE(judged_reach(run, {}).reason.find("samples=2 makes room") != std::string::npos);
}

TEST_CASE("however many tensors rested, they take nobody's place and cost no more than a room") {
  fake_run run(1000, 10, 1000);
  run.jump = jumps({500, 700, 900}, 50);
  const std::size_t without = asked(run, only_reach(), "reach").size();
  const auto made = run.view.moved;
  run.view.moved = [&] {
    auto out = std::make_shared<movements>(*made());
    for (std::size_t t = 0; t < 40; ++t) {
      out->tensors.push_back({"model/parameters/v" + std::to_string(t), "parameters", 4});
      for (std::size_t s = 0; s < out->stretches.size(); ++s) {
        const bool is_far = s == 50 || s == 70 || s == 90;
        out->stretches[s].moved.push_back(is_far || s == 2 + t || s == 51 + t % 18 ? 1 : 0);
      }
    }
    return std::shared_ptr<const movements>(std::move(out));
  };
  const auto found = asked(run, only_reach(), "reach");
  REQUIRE(found.size() > without + 3);  // which seldom move
  REQUIRE(found.size() <= without + 12 + 3);
  std::vector<segment_measurement> all;
  for (const auto& one : plan(run, only_reach())) all.push_back(answered(one.start, one.end));
  REQUIRE(judged_reach(run, all).result == outcome::pass);
}

TEST_CASE("states are read once each, and what they hold is compared tensor by tensor") {
  snapshot_memory memory;
  std::vector<int> loads(5);
  const auto load = [&](std::uint64_t step) -> result<state> {
    ++loads[step];
    if (step == 0) return state_of({0, 0, 0}, {}, memory);
    if (step == 3) return error{errc::missing, "gone", ""};
    const auto at = static_cast<float>(step);
    return state_of({3 * at, 4 * at, 0}, {at, 0}, memory);
  };
  const std::vector<segment> all{{0, 1}, {1, 2}, {2, 3}, {3, 4}};
  const movements found = measure_movements(all, load);
  REQUIRE(loads == std::vector<int>{1, 1, 1, 1, 1});
  REQUIRE(found.tensors.size() == 2);
  REQUIRE(found.tensors[0].kind == "parameters");
  REQUIRE(found.tensors[0].elements == 3);
  REQUIRE(found.tensors[1].kind == "optimizers/momentum_buffer");
  REQUIRE(found.stretches[0].moved == std::vector<double>{5, 1});
  REQUIRE(found.stretches[1].moved == std::vector<double>{5, 1});
  REQUIRE(found.stretches[1].read);
  REQUIRE_FALSE(found.stretches[2].read);
  REQUIRE_FALSE(found.stretches[3].read);
}

TEST_CASE("a tensor that changes its size is beyond every reach, one that goes moves its length") {
  snapshot_memory memory;
  const auto load = [&](std::uint64_t step) -> result<state> {
    if (step == 2) return state_of({1, 2, 3}, {1, 2, 3}, memory);
    if (step == 3) return state_of({1, 2, 3}, {}, memory);
    return state_of({1, 2, 3}, {3, 4}, memory);
  };
  const std::vector<segment> all{{0, 1}, {1, 2}, {2, 3}};
  const movements found = measure_movements(all, load);
  REQUIRE(found.stretches[0].moved[1] == 0);
  REQUIRE(std::isnan(found.stretches[1].moved[1]));
  REQUIRE(found.stretches[2].moved[1] == Approx(std::sqrt(14.0)));
}

TEST_CASE("names that the prover makes up do not fill the memory") {
  snapshot_memory memory;
  const auto load = [&](std::uint64_t step) -> result<state> {
    return state_of({1}, {1}, memory, "made_up_" + std::to_string(step));
  };
  std::vector<segment> all;
  for (std::uint64_t step = 0; step < 600; ++step) all.push_back({step, step + 1});
  const movements found = measure_movements(all, load);
  REQUIRE(found.tensors.size() == 8 * 2 + 512);
  REQUIRE(found.stretches[400].read);  // as many as LBFGS makes
  REQUIRE_FALSE(found.stretches[550].read);
}

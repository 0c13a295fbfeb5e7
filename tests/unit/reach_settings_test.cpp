// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <set>

#include "fake_run.hpp"
#include "run_fixture.hpp"

using namespace potl;
using namespace potl::checks;
using namespace potl::transcript;

namespace {

state_value members(std::vector<std::pair<std::string, state_value>> all) {
  state_map out;
  for (auto& [name, value] : all) out.push_back({name, std::move(value)});
  return {std::move(out)};
}

std::vector<segment> asked_beyond(const fake_run& run, std::uint64_t samples, double reach = 10) {
  replay_options options;
  options.samples = samples;
  options.top_q = 0;
  options.reach = reach;
  std::vector<segment> out;
  const auto planned = plan_replay(run.view, options, nonce_of(1));
  for (const auto& one : planned.value()) {
    if (one.why == "reach") out.push_back({one.start, one.end});
  }
  return out;
}

// What a step of the user's own, and objects of theirs, may change at any time, after `step`.
state_value settings(std::uint64_t step, double rate, double scale, double base, double shown) {
  const auto count = static_cast<double>(step);
  const auto group = members({{"lr", {rate}}, {"name", {std::string("a")}}});
  const auto schedule = members({{"base_lrs", {state_list{{base}}}}, {"count", {count}}});
  return members({{"optimizers", {state_list{members({{"param_groups", {state_list{group}}}})}}},
                  {"scaler", members({{"scale", {scale}}})},
                  {"schedulers", {state_list{schedule}}},
                  {"state", members({{"mask", {shown}}, {"seen", {state_list(step, {1.0})}}})}});
}

using settings_at = std::function<state_value(std::uint64_t)>;

// Of 20 stretches of 10 steps: those whose settings are strange, the strangest first.
std::vector<screened> strange(const settings_at& at, bool agreed_rates = false) {
  snapshot_memory memory;
  fake_run run(200, 10);
  if (!agreed_rates) run.view.agreed.rates.clear();
  const auto load = [&](std::uint64_t step) -> result<state> { return capture(at(step), memory); };
  const movements moved = measure_movements(stretches_of(run.view), load);
  std::vector<screened> out;
  for (const screened& one : screen_settings(run.view, moved)) {
    if (one.ratio > 0) out.push_back(one);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.ratio > b.ratio; });
  return out;
}

}  // namespace

TEST_CASE("settings that change where they seldom do are strange, lists and own objects too") {
  const auto at = [](double rate, double scale, double base, double shown) {
    const auto found = strange([=](std::uint64_t step) {
      return step < 100 ? settings(step, 0.1, 1024, 0.1, 1)
                        : settings(step, rate, scale, base, shown);
    });
    REQUIRE(found[0].where == segment{90, 100});
    REQUIRE(found[0].ratio >= 2 * found[1].ratio - 1e-9);  // a counter, from 0 to 10
    return found[0].tensor;
  };
  REQUIRE(at(0, 1024, 0.1, 1) == "optimizers/0/param_groups/0/lr");
  REQUIRE(at(0.1, 1e-38, 0.1, 1) == "scaler/scale");
  REQUIRE(at(0.1, 1024, 0, 1) == "schedulers/0/base_lrs/0");
  REQUIRE(at(0.1, 1024, 0.1, 0) == "state/mask");
}

TEST_CASE("what stays infinite makes no change beside it less strange") {
  const float inf = std::numeric_limits<float>::infinity();
  const auto ratio = [](const std::vector<float>& before, const std::vector<float>& after) {
    const auto found = strange([&](std::uint64_t step) {
      const state_tensor best = potl_test::tensor_of(step < 100 ? before : after);
      return members({{"state", members({{"best", {best}}})}});
    });
    REQUIRE(found.size() == 1);
    REQUIRE(found[0].where == segment{90, 100});
    return found[0].ratio;
  };
  REQUIRE(ratio({0, 1}, {0, 2}) == 0.5);
  REQUIRE(ratio({inf, 1}, {inf, 2}) == 0.5);
  REQUIRE(ratio({inf, 1}, {3, 1}) == 1);
}

TEST_CASE("the largest change is the strangest, and what changes everywhere is not strange") {
  const auto falling = [](std::uint64_t step) {
    const double falls = 1 - static_cast<double>(step % 100) / 200;
    const double rate = (step < 100 ? 0.1 : 0.0001) * falls;
    const double scale = step < 40 ? 1024 : step < 80 ? 2048 : step < 150 ? 4096 : 1e-9;
    return settings(step, rate, scale, 0.1, 1);
  };
  const auto found = strange(falling);
  REQUIRE(found[0].tensor == "optimizers/0/param_groups/0/lr");
  REQUIRE(found[0].where == segment{90, 100});
  REQUIRE(found[0].ratio > 0.9);
  REQUIRE(found[1].tensor == "schedulers/0/count");  // from 0 to 10
  REQUIRE(found[2].where == segment{140, 150});
  REQUIRE(found[2].ratio == Approx(1.0 / 3));
  REQUIRE(found[5].ratio < 0.2);
}

TEST_CASE("where settings are strange a quarter of the samples is replayed, and no more") {
  snapshot_memory memory;
  fake_run run(1000, 10);
  run.view.agreed.rates.clear();
  std::set<std::uint64_t> drawn, stops;
  for (const std::uint64_t samples : {12u, 16u}) {
    replay_options options;
    options.samples = samples;
    const auto planned = plan_replay(run.view, options, nonce_of(1));
    for (const auto& one : planned.value()) drawn.insert(one.start);
  }
  for (std::uint64_t start = 100; stops.size() < 5; start += 10) {
    if (drawn.count(start) == 0) stops.insert(start);
  }
  std::uint64_t changes = 0;
  const auto load = [&](std::uint64_t step) -> result<state> {
    if (step > 0 && stops.count(step - 10) != 0) ++changes;
    return capture(settings(0, 0.1, std::pow(2.0, static_cast<double>(changes)), 0.1, 1), memory);
  };
  const auto moved = std::make_shared<movements>(measure_movements(stretches_of(run.view), load));
  run.view.moved = [&] { return moved; };
  REQUIRE(asked_beyond(run, 12).size() == 3);
  REQUIRE(asked_beyond(run, 16).size() == 4);
  for (const segment& one : asked_beyond(run, 12)) REQUIRE(stops.count(one.start));
  REQUIRE(asked_beyond(run, 12, 0).empty());

  segment_measurement first;
  first.request.end = 10;
  first.status = measured::ok;
  REQUIRE(judge_reach(run.view, 10, 98, 98, std::vector{first}).result == outcome::pass);
}

TEST_CASE("with agreed rates the schema computes all settings but those of own objects") {
  const auto at = [](double rate, double shown) {
    return [=](std::uint64_t step) {
      return step < 100 ? settings(step, 0.1, 1024, 0.1, 1)
                        : settings(step, rate, 1024, 0.1, shown);
    };
  };
  for (const screened& one : strange(at(0, 1), true)) REQUIRE(one.tensor == "state/seen");
  REQUIRE(strange(at(0, 0), true)[0].tensor == "state/mask");
}

TEST_CASE(
    "with agreed rates an option under a name of its own is strange where it seldom changes") {
  const auto at = [](const std::string& name, std::function<double(std::uint64_t)> value) {
    return strange(
        [=](std::uint64_t step) {
          const auto group = members({{"lr", {0.1}}, {name, {value(step)}}});
          const auto groups = state_list{group, group};
          return members({{"optimizers", {state_list{members({{"param_groups", {groups}}})}}}});
        },
        true);
  };
  const auto late = [](std::uint64_t step) { return step < 100 ? 1.0 : 1.5; };
  const auto found = at("scale", late);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].where == segment{90, 100});
  REQUIRE(found[0].tensor == "optimizers/0/param_groups/0/scale");
  REQUIRE(at("d", late).size() == 1);
  REQUIRE(at("weight_decay", late).empty());
  // What the first stretch moved far may go back within its usual movement.
  const auto back = at("scale", [](std::uint64_t step) { return step % 100 < 10 ? 1e-6 : 1.0; });
  REQUIRE(back.size() == 4);
  REQUIRE(back[1].where == segment{90, 100});
}

TEST_CASE("containers are settings, by their sizes and where they come in place of a value") {
  const auto turned = [](const state_value& before, const state_value& after) {
    return strange(
        [&](std::uint64_t step) {
          const auto group = members({{"own", step < 100 ? before : after}});
          return members(
              {{"optimizers", {state_list{members({{"param_groups", {state_list{group}}}})}}}});
        },
        true);
  };
  const state_value none, one{state_list{{1.0}}}, two{state_list{{1.0}, {2.0}}};
  const std::vector<std::pair<state_value, state_value>> all{
      {none, one}, {one, none},           {one, two},
      {two, one},  {{state_list{}}, one}, {none, members({{"a", {1.0}}})},
      {{1.0}, one}};
  for (const auto& [before, after] : all) {
    const auto found = turned(before, after);
    REQUIRE(found.size() == 1);
    REQUIRE(found[0].where == segment{90, 100});
    REQUIRE(found[0].tensor == "optimizers/0/param_groups/0/own");
  }
  REQUIRE(turned(one, one).empty());
}

TEST_CASE("weights that stand still and move in a few places are strange where they do") {
  std::list<std::vector<float>> kept;  // a tensor is a view
  const auto tensor = [&](std::vector<float> values) {
    return state_value{potl_test::tensor_of(kept.emplace_back(std::move(values)))};
  };
  const auto moved = [&](std::set<std::uint64_t> at, std::uint64_t thaw = 1000, float by = 1e-3F) {
    return strange(
        [&](std::uint64_t step) {
          float frozen = 0;
          for (const std::uint64_t one : at) frozen += one <= step ? by : 0;
          const auto own = static_cast<float>(step), thawed = step < thaw ? 0 : own;
          const auto all = members({{"frozen", tensor({frozen, 1})},
                                    {"thawing", tensor({thawed, 1})},
                                    {"trained", tensor({own, 1})}});
          return members({{"model", members({{"parameters", all}})}});
        },
        true);
  };
  const auto once = moved({100});
  REQUIRE(once.size() == 1);
  REQUIRE(once[0].where == segment{90, 100});
  REQUIRE(once[0].tensor == "model/parameters/frozen");
  REQUIRE(once[0].ratio == 1);
  REQUIRE(moved({100, 150})[1].ratio == 0.5);
  REQUIRE(moved({100}, 1000, std::numeric_limits<float>::infinity())[0].where == segment{90, 100});
  REQUIRE(moved({}).empty());
  // The first stretch is true.
  REQUIRE(moved({10}).empty());
  REQUIRE(moved({10, 100}).size() == 1);
  REQUIRE(moved({10, 100})[0].ratio == 1);
  // Layers thaw in honest trainings.
  REQUIRE(moved({}, 20).empty());
  REQUIRE(moved({100}, 150)[0].where == segment{90, 100});
}

TEST_CASE("moments that no gradients make are strange where they come, and only there") {
  std::list<std::vector<float>> kept;
  const auto tensor = [&](std::vector<float> values) {
    return state_value{potl_test::tensor_of(kept.emplace_back(std::move(values)))};
  };
  std::vector<state_value> groups;
  // Of two elements, the second has no gradient. What is false then fades.
  const auto pushed = [&](float by, float square = 0, const char* second = "exp_avg_sq",
                          float was = 0) {
    return strange(
        [&](std::uint64_t step) {
          const auto count = static_cast<float>(step);
          const bool early = step < 100;
          const auto own = members({{"exp_avg", tensor({count, early ? 0 : by / count})},
                                    {second, tensor({count, early ? was : square})}});
          const auto all = members({{"state", members({{"0", own}})}, {"param_groups", {groups}}});
          return members({{"optimizers", {state_list{all}}}});
        },
        true);
  };
  const auto found = pushed(1e-4F);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].where == segment{90, 100});
  REQUIRE(found[0].tensor == "optimizers/0/state/0/exp_avg");
  REQUIRE(found[0].ratio == 1);
  REQUIRE(pushed(1e-4F, 1e-15F).empty());  // as gradients may make it
  REQUIRE(pushed(1e-14F).empty());         // their squares are rounded to 0
  REQUIRE(pushed(1e-4F, 1e-8F, "exp_inf").at(0).where == segment{90, 100});
  REQUIRE(pushed(1e-4F, 1e-6F, "exp_inf").empty());
  REQUIRE(pushed(0, 0, "exp_avg_sq", 1).empty());

  // With the job's betas: the mean is at most 7.27 times the root.
  const auto group = [](double mean_share, double square_share) {
    return members({{"betas", {state_tuple{{{mean_share}, {square_share}}}}}});
  };
  groups = {group(0.9, 0.999)};
  const float square = 1e-12F / (4 * 53);
  REQUIRE(pushed(1e-4F, 0.99F * square).at(0).where == segment{90, 100});
  REQUIRE(pushed(1e-4F, 1.01F * square).empty());
  // Ten steps leave 0.99 of a square, and of sizes.
  REQUIRE(pushed(0, 0.24F, "exp_avg_sq", 1).at(0).where == segment{90, 100});
  REQUIRE(pushed(0, 0.26F, "exp_avg_sq", 1).empty());
  REQUIRE(pushed(0, 0.48F, "exp_inf", 1).at(0).where == segment{90, 100});
  REQUIRE(pushed(0, 0.51F, "exp_inf", 1).empty());
  // The group that allows more counts.
  groups.push_back(group(0.5, 0.9));
  REQUIRE(pushed(0, 0.08F, "exp_avg_sq", 1).at(0).where == segment{90, 100});
  REQUIRE(pushed(0, 0.09F, "exp_avg_sq", 1).empty());
  REQUIRE(pushed(1e-4F, 0.99F * square).at(0).where == segment{90, 100});
  groups.push_back(group(0.9, 0.5));  // nothing bounds its mean
  REQUIRE(pushed(1e-4F, 0.99F * square).empty());
}

TEST_CASE("a product that grows is strange, since steps of NAdam make it smaller") {
  std::list<std::vector<float>> kept;
  // Its value after a step; below zero: none, and none of the tensor's elements.
  const auto grown = [&](const std::function<float(std::uint64_t)>& at) {
    return strange(
        [&](std::uint64_t step) {
          const float value = at(step);
          auto& values = kept.emplace_back(value < 0 ? 0 : 1, value);
          const auto own = members({{"mu_product", {potl_test::tensor_of(values)}}});
          const auto all = members({{"state", members({{"0", own}})}});
          return members({{"optimizers", {state_list{all}}}});
        },
        true);
  };
  const auto fades = [](std::uint64_t step) { return std::pow(0.9F, static_cast<float>(step)); };
  REQUIRE(grown(fades).empty());
  const auto found = grown([&](std::uint64_t step) { return fades(step) * (step < 100 ? 1 : 4); });
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].where == segment{90, 100});
  REQUIRE(found[0].tensor == "optimizers/0/state/0/mu_product");
  REQUIRE(found[0].ratio == 1);
  REQUIRE(grown([&](std::uint64_t step) { return step < 100 ? -1 : fades(step); }).empty());
  REQUIRE(grown([&](std::uint64_t step) { return step < 100 ? -1 : 1.1F; })[0].where ==
          segment{90, 100});
}

TEST_CASE("a copy that an optimizer makes is measured from the parameter, and moments from zero") {
  snapshot_memory memory;
  const auto first_of = [&](std::vector<float> made) {
    std::vector<float> before{30, 40, 0}, after{30, 40, 1};
    const auto load = [&](std::uint64_t step) -> result<state> {
      auto& weights = step == 0 ? before : after;
      const auto model =
          members({{"parameters", members({{"w", {potl_test::tensor_of(weights)}}})}});
      if (step == 0) return capture(members({{"model", model}}), memory);
      const auto kept = members({{"0", members({{"z", {potl_test::tensor_of(made)}}})}});
      const auto own = members({{"state", kept}});
      return capture(members({{"model", model}, {"optimizers", {state_list{own}}}}), memory);
    };
    const movements found = measure_movements(std::vector<segment>{{0, 1}}, load);
    return std::pair(found.stretches[0].moved[1], found.tensors[1].copy_of.has_value());
  };
  REQUIRE(first_of({33, 44, 0}) == std::pair(5.0, true));
  REQUIRE(first_of({3, -4, 0}) == std::pair(5.0, false));
  REQUIRE(first_of({30, 40, 0}) == std::pair(50.0, false));  // which has not moved yet
  REQUIRE(first_of({30, 40}) == std::pair(50.0, false));
}

TEST_CASE("a copy is told by elements from all of it") {
  snapshot_memory memory;
  std::vector<float> other(2000, 3), source = other, made = other;
  for (std::size_t i = 1500; i < 2000; ++i) {
    source[i] = -7;
    made[i] = -7.5F;
  }
  const auto load = [&](std::uint64_t step) -> result<state> {
    const auto weights =
        members({{"a", {potl_test::tensor_of(other)}}, {"b", {potl_test::tensor_of(source)}}});
    const auto model = members({{"parameters", weights}});
    if (step == 0) return capture(members({{"model", model}}), memory);
    const auto kept = members({{"0", members({{"z", {potl_test::tensor_of(made)}}})}});
    const auto own = members({{"state", kept}});
    return capture(members({{"model", model}, {"optimizers", {state_list{own}}}}), memory);
  };
  const movements found = measure_movements(std::vector<segment>{{0, 1}}, load);
  REQUIRE(found.tensors[2].copy_of == 1U);
  REQUIRE(found.stretches[0].moved[2] == std::sqrt(500 * 0.25));
}

TEST_CASE("a copy is measured at the largest rates, as the parameter that it was made of") {
  fake_run run(1000, 10, 100);
  run.view.agreed.rates = {{500, {0.01}}, {500, {0.1}}};
  run.view.agreed.rate_ends = {500, 1000};
  movements moved = *run.view.moved();
  moved.tensors.push_back({"optimizers/0/state/0/z", "optimizers/z", 4, 0});
  for (auto& one : moved.stretches) one.moved = {0, one.where.start < 500 ? 1. : 10.};
  const auto ratio_at = [&](std::size_t stretch) {
    return screen(run.view, moved, usual_of::first_stretch).stretches[stretch].ratio;
  };
  REQUIRE(ratio_at(70) == 1);
  REQUIRE(ratio_at(0) == 0.1);
  // As far as its parameter it may move in any case.
  moved.stretches[0].moved[0] = 2;
  REQUIRE(ratio_at(70) == 0.5);
  moved.tensors[1].copy_of.reset();
  REQUIRE(ratio_at(70) == 10);
}

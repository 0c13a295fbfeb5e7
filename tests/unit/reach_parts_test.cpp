// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>

#include "fake_run.hpp"
#include "run_fixture.hpp"

using namespace potl;
using namespace potl::checks;
using namespace potl::transcript;

namespace {

state_value map_of(std::vector<std::pair<std::string, state_value>> members) {
  state_map out;
  for (auto& [name, value] : members) out.push_back({name, std::move(value)});
  return {std::move(out)};
}

// What can shut a net without a weight that moves, each at `shut` from step 5 on.
struct doors {
  state_value mask, gain, kept, option, rate, listed, flag;
  std::string name = "k";  // of the option
  state_value tree() const {
    state_value groups{state_list{map_of({{name, option}, {"lr", rate}})}};
    state_value optimizer =
        map_of({{"param_groups", std::move(groups)}, {"state", map_of({{"a", kept}})}});
    state_value extra = map_of({{"gain", gain}, {"more", listed}});
    return map_of({{"ema", map_of({{"flag", flag}})},
                   {"model", map_of({{"buffers", map_of({{"mask", mask}})}, {"extra", extra}})},
                   {"optimizers", {state_list{std::move(optimizer)}}}});
  }
};

movements moved_doors(const std::function<doors(std::uint64_t)>& at) {
  snapshot_memory memory;
  fake_run run(100, 10);
  const auto load = [&](std::uint64_t step) -> result<state> {
    return capture(at(step).tree(), memory);
  };
  return measure_movements(stretches_of(run.view), load);
}

screening seen_by(const movements& moved) {
  return screen(fake_run(100, 10).view, moved, usual_of::all_stretches);
}

screening screened_doors(const std::function<doors(std::uint64_t)>& at) {
  return seen_by(moved_doors(at));
}

doors open_doors(std::uint64_t step) {
  const auto count = static_cast<std::int64_t>(step);
  static const std::vector<std::uint8_t> ones{1, 1};
  doors out;
  state_tensor mask;
  mask.type = dtype::boolean;
  mask.memory_format = "contiguous";
  mask.dims = {2};
  mask.bytes = ones;
  out.mask = {mask};
  out.gain = {1.0};
  out.kept = {std::int64_t{7}};
  out.option = {count};
  out.rate = {step < 50 ? 0.1 : 0.01};
  out.listed = {state_list(step, {std::int64_t{1}})};
  out.flag = {true};
  return out;
}

}  // namespace

TEST_CASE("masks, numbers of modules and optimizers, and flags that move are beyond every reach") {
  static const std::vector<std::uint8_t> zeros{0, 0};
  const auto beyond = [](const std::function<void(doors&)>& shut) {
    const screening seen = screened_doors([&](std::uint64_t step) {
      doors out = open_doors(step);
      if (step == 50) shut(out);
      return out;
    });
    std::string at = seen.stretches[4].tensor;
    for (std::size_t i = 0; i < seen.stretches.size(); ++i) {
      REQUIRE(is_beyond(seen.stretches[i], 20) == (!at.empty() && (i == 4 || i == 5)));
    }
    return at;
  };
  REQUIRE(beyond([](doors& one) { std::get<state_tensor>(one.mask.content).bytes = zeros; }) ==
          "model/buffers/mask");
  REQUIRE(beyond([](doors& one) { one.gain = {0.0}; }) == "model/extra/gain");
  REQUIRE(beyond([](doors& one) { one.kept = {std::int64_t{8}}; }) == "optimizers/0/state/a");
  REQUIRE(beyond([](doors& one) { one.flag = {false}; }) == "ema/flag");
  REQUIRE(beyond([](doors& one) { one.option = {std::int64_t{1000000}}; }) ==
          "optimizers/0/param_groups/0/k");
  REQUIRE(beyond([](doors& one) {
            auto tensor = std::get<state_tensor>(one.mask.content);
            tensor.bytes = zeros;  // memory of its own, so that it is no alias
            one.kept = {tensor};
          }) == "optimizers/0/state/a");
}

TEST_CASE("numbers in an option are screened one by one, if it is none of the recipe's") {
  const auto ratios = [](int kind, const std::string& name) {
    return screened_doors([&](std::uint64_t step) {
             doors out = open_doors(step);
             const double usual = step % 20 == 0 ? 0.1 : -0.2, far = step == 50 ? 1e4 : usual;
             const double place = step == 50 ? usual : 1e4;
             const auto length = static_cast<std::size_t>(step == 50 ? 999 : 3 + step % 20);
             if (kind == 0) out.option = {state_list{{far}, {place}}};
             if (kind == 1) out.option = {state_list{{HUGE_VAL}, {state_list{{far}}}}};
             if (kind == 2) out.option = {state_list(length, {1.0})};
             if (kind == 3) out.option = {state_tuple{{{far}, {std::int64_t{3}}}}};
             if (kind == 4) out.option = map_of({{"a", {far}}});
             if (kind == 5) out.option = map_of({{"a", {state_list{{far}}}}});
             out.name = name;
             return out;
           })
        .stretches;
  };
  for (const int kind : {0, 1, 2, 3, 4, 5}) {
    const auto own = ratios(kind, "k"), agreed = ratios(kind, "betas");
    for (std::size_t i = 0; i < own.size(); ++i) {
      REQUIRE(is_beyond(own[i], 20) == (i == 4 || i == 5));
      REQUIRE(agreed[i].ratio <= 1);
    }
  }
}

TEST_CASE("a list in an option may grow at either end") {
  for (const bool in_front : {false, true}) {
    const movements moved = moved_doors([&](std::uint64_t step) {
      doors out = open_doors(step);
      state_list all;
      for (std::uint64_t i = 0; i < 10 * step; ++i) {
        const std::uint64_t made = in_front ? 10 * step - i : i;
        all.push_back({100 + 0.1 * static_cast<double>(made % 7)});
      }
      out.option = {std::move(all)};
      return out;
    });
    REQUIRE(moved.tensors.size() < 600);
    for (const auto& one : seen_by(moved).stretches) REQUIRE(one.ratio <= 20);
  }
}

TEST_CASE("what the schema computes, and lists that grow, are not screened") {
  const screening seen = screened_doors(open_doors);
  for (const screened& one : seen.stretches) REQUIRE(one.ratio <= 1);
  const screening scheduled = screened_doors([](std::uint64_t step) {
    doors out = open_doors(step);
    out.option = {step < 50 ? 0.9 : 0.5};
    out.rate = {step == 50 ? 1e6 : static_cast<double>(step)};
    return out;
  });
  for (const screened& one : scheduled.stretches) REQUIRE(one.ratio <= 1);
}

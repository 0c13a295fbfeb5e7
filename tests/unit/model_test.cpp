// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <cmath>

#include <potl/checks/model.hpp>

#include "state_tree.hpp"

using namespace potl;
using namespace potl::checks;

namespace {

struct delivery {
  std::vector<std::vector<float>> memory;
  safetensors_view view;

  void add(const std::string& name, const std::vector<float>& values) {
    memory.reserve(16);
    const auto& kept = memory.emplace_back(values);
    safetensors_tensor one;
    one.name = name;
    one.type = dtype::f32;
    one.dims = {kept.size()};
    one.data = {reinterpret_cast<const std::uint8_t*>(kept.data()), 4 * kept.size()};
    view.tensors.push_back(one);
    std::sort(view.tensors.begin(), view.tensors.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
  }
};

struct honest_delivery : delivery {
  explicit honest_delivery(const small_state& state) {
    add("w", state.weights);
    add("mean", state.means);
  }
};

tree::value tied(tree& t, const std::vector<float>& values) {
  tree::value alias{transcript::state_alias{"model/parameters/a"}};
  return tree::dict(
      {{"model", tree::dict({{"parameters", tree::dict({{"a", t.floats(values)}, {"b", alias}})},
                             {"buffers", tree::dict({})}})}});
}

}  // namespace

TEST_CASE("the last committed state is recognised bit for bit") {
  small_state state;
  const honest_delivery file(state);
  REQUIRE(compare_model(state.root(), file.view).result == outcome::pass);
}

TEST_CASE("one changed bit of one tensor rejects and is named") {
  small_state state;
  auto changed = state;
  changed.weights[2] = std::nextafter(changed.weights[2], 9.0f);
  const honest_delivery file(changed);
  const finding found = compare_model(state.root(), file.view);
  REQUIRE(found.result == outcome::reject);
  REQUIRE(found.rule == "model.delivered");
  REQUIRE(found.reason.find("\"w\" has other values") != std::string::npos);
}

TEST_CASE("another shape or dtype of the same bytes rejects") {
  small_state state;
  honest_delivery file(state);
  file.view.tensors[1].dims = {2, 2};
  REQUIRE(compare_model(state.root(), file.view).result == outcome::reject);
  file.view.tensors[1].dims = {4};
  file.view.tensors[1].type = dtype::i32;
  REQUIRE(compare_model(state.root(), file.view).result == outcome::reject);
}

TEST_CASE("a tensor too many or too few rejects") {
  small_state state;
  honest_delivery extra(state);
  extra.add("backdoor", {1});
  REQUIRE(compare_model(state.root(), extra.view).result == outcome::reject);
  delivery lacking;
  lacking.add("mean", state.means);
  REQUIRE(compare_model(state.root(), lacking.view).result == outcome::reject);
}

TEST_CASE("a buffer may be left out only if the task keeps it out of its state_dict") {
  small_state state;
  delivery file;
  file.add("w", state.weights);
  const auto with = [&](const optional_buffers& may_lack) {
    return compare_model(state.root(), file.view, may_lack);
  };
  REQUIRE(compare_model(state.root(), file.view).result == outcome::reject);
  REQUIRE(with(std::vector<std::string>{"other"}).result == outcome::reject);
  REQUIRE(with(std::nullopt).result == outcome::inconclusive);
  const finding found = with(std::vector<std::string>{"mean"});
  REQUIRE(found.result == outcome::pass);
  REQUIRE(found.reason.find("mean") != std::string::npos);
}

TEST_CASE("no excuse lets a parameter be left out") {
  small_state state;
  delivery file;
  file.add("mean", state.means);
  const std::vector<std::string> all{"w", "mean"};
  REQUIRE(compare_model(state.root(), file.view, all).result == outcome::reject);
}

TEST_CASE("tied weights may be delivered under one name or under both") {
  tree t;
  const auto state = tied(t, {1, 2});
  for (const std::vector<std::string>& names :
       std::vector<std::vector<std::string>>{{"a"}, {"b"}, {"a", "b"}}) {
    delivery file;
    for (const std::string& name : names) file.add(name, {1, 2});
    REQUIRE(compare_model(state, file.view).result == outcome::pass);
  }
  delivery split;
  split.add("a", {1, 2});
  split.add("b", {1, 3});
  REQUIRE(compare_model(state, split.view).result == outcome::reject);
  REQUIRE(compare_model(state, delivery().view).result == outcome::reject);
}

TEST_CASE("the digest of a model depends on names, shapes and bits, not on the optimizer") {
  small_state state, other;
  const digest before = model_digest(state.root());
  other.momentum[0] = 9;
  REQUIRE(model_digest(other.root()) == before);
  other.means[0] = 9;
  REQUIRE(model_digest(other.root()) != before);
}

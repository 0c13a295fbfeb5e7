// SPDX-License-Identifier: Apache-2.0
// Hand-written states for tests: a tree whose tensors' bytes live as long as the object.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include <potl/transcript/state.hpp>

struct tree {
  using value = potl::transcript::state_value;
  using map = potl::transcript::state_map;
  using list = potl::transcript::state_list;

  template <class Element>
  value tensor(potl::dtype type, const std::vector<Element>& elements) {
    auto& bytes = memory.emplace_back(elements.size() * sizeof(Element));
    std::memcpy(bytes.data(), elements.data(), bytes.size());
    potl::transcript::state_tensor out;
    out.type = type;
    out.memory_format = "contiguous";
    out.dims = {elements.size()};
    out.bytes = {bytes.data(), bytes.size()};
    return {out};
  }
  value floats(const std::vector<float>& elements) { return tensor(potl::dtype::f32, elements); }
  value scalar(float element) {
    value out = floats({element});
    std::get<potl::transcript::state_tensor>(out.content).dims.clear();
    return out;
  }
  static value dict(std::vector<std::pair<std::string, value>> members) {
    map out;
    for (auto& [name, member] : members) out.push_back({name, std::move(member)});
    std::sort(out.begin(), out.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    return {out};
  }

  std::deque<std::vector<std::uint8_t>> memory;
};

/// {"model": {"parameters": {"w": ...}, "buffers": {...}}, "optimizers": [{"b": ...}], "counters"}.
struct small_state : tree {
  std::vector<float> weights{1, 2, 3, 4};
  std::vector<float> means{0.5, 0.25};
  std::vector<float> momentum{0.1f, 0.2f, 0.3f, 0.4f};
  std::int64_t step = 7;
  bool has_momentum = true;

  value root() {
    list optimizers{has_momentum ? dict({{"b", floats(momentum)}}) : dict({})};
    return dict({{"model", dict({{"parameters", dict({{"w", floats(weights)}})},
                                 {"buffers", dict({{"mean", floats(means)}})}})},
                 {"optimizers", {optimizers}},
                 {"counters", dict({{"step", {step}}})}});
  }
};

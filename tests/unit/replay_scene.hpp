// SPDX-License-Identifier: Apache-2.0
// Segments of a fake run whose tensors differ, and what is judged of them.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "replay_fixture.hpp"

namespace replay_scene {

using namespace potl;
using namespace potl::checks;

inline tensor_distance tensor(const std::string& path, double off, double count,
                              double update = 1) {
  return {path, count, off, off, 1e-7, update, update};
}

inline group_distance empty(const std::string& name) {
  group_distance out;
  out.group = name;
  out.update_l2 = out.replayed_update_l2 = 10;
  out.weight_l2 = 100;
  out.count = 1000;
  return out;
}

inline std::vector<group_distance> parameters(std::vector<tensor_distance> tensors) {
  group_distance out = empty("parameters");
  for (const tensor_distance& one : tensors) {
    if (is_code(one.judged)) continue;
    out.l2 = std::hypot(out.l2, one.l2);
    out.excess_l2 = std::hypot(out.excess_l2, one.excess);
  }
  out.cosine = 0;
  out.tensors = std::move(tensors);
  return {out, empty("buffers"), empty("optimizer"), empty("other")};
}

/// Equal bits everywhere until a test changes a segment.
struct scene {
  fake_run run;
  replay_options options;
  std::vector<segment_measurement> measured;

  explicit scene(std::uint64_t steps = 100, std::uint64_t samples = 12) : run(steps) {
    options.samples = samples;
    run.distance = 1000;  // an interpolation is not at stake
    options.top_q = 0;    // nor is what a screen would add
    options.reach = 0;
    options.margin = 8;
    const auto plan = plan_replay(run.view, options, nonce_of(1));
    for (const auto& request : plan.value()) measured.push_back(honest(run, request));
  }
  void differs(std::size_t at, std::vector<tensor_distance> tensors) {
    measured[at].digest_equal = false;
    measured[at].distances = parameters(std::move(tensors));
  }
  void noise(std::size_t at, const std::vector<tensor_distance>& tensors, std::size_t repeats = 2) {
    measured[at].noise.assign(repeats, parameters(tensors));
    measured[at].noise_losses.assign(repeats, measured[at].losses);
    measured[at].other_arithmetic = true;
  }
  void rough(std::size_t at, const std::vector<tensor_distance>& tensors) {
    measured[at].rough.push_back(parameters(tensors));
    measured[at].rough_losses.push_back(measured[at].losses);
  }
  std::vector<finding> judge() const {
    return judge_replay(run.view, options, nonce_of(1), measured).value();
  }
  std::string verdict() const {
    const auto found = judge();
    if (count(found, outcome::reject) > 0) return "rejected";
    return count(found, outcome::inconclusive) > 0 ? "inconclusive" : "accepted";
  }
  std::vector<segment_request> more() const { return plan_noise(run.view, options, measured); }
};

/// Codes, of which so many differ, and how far those are off.
inline std::vector<tensor_distance> codes(double off, double many, double moved, double far) {
  tensor_distance values = tensor("codes", off, 2000, far);
  values.judged = judged_as::codes;
  tensor_distance places = values;
  places.path = "codes (how many)";
  places.judged = judged_as::code_places;
  places.l2 = places.excess = many;
  places.update_l2 = places.replayed_update_l2 = moved;
  return {values, places};
}

}  // namespace replay_scene

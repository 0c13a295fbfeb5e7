// SPDX-License-Identifier: Apache-2.0
// What replays of a fake run measure.
#pragma once

#include <string>
#include <vector>

#include "fake_run.hpp"

inline potl::checks::group_distance group(const std::string& name, double l2 = 0) {
  potl::checks::group_distance out;
  out.group = name;
  out.l1 = out.l2 = out.linf = out.excess_l2 = l2;
  out.cosine = 0;  // a difference in no particular direction
  out.update_l2 = out.replayed_update_l2 = 1;
  out.weight_l2 = 10;
  out.rounding_l2 = 1e-6;
  out.count = 1000;
  return out;
}

inline std::vector<potl::checks::group_distance> groups(double parameters, double buffers = 0,
                                                        double optimizer = 0) {
  return {group("parameters", parameters), group("buffers", buffers), group("optimizer", optimizer),
          group("other")};
}

/// The recorded bits and losses.
inline potl::checks::segment_measurement honest(const fake_run& run,
                                                const potl::checks::segment_request& request) {
  potl::checks::segment_measurement out;
  out.request = request;
  out.digest_equal = true;
  for (std::uint64_t step = request.start + 1; step <= request.end; ++step) {
    const auto* record =
        request.superseded ? run.view.superseded_step(request.branch, step) : run.view.step(step);
    out.losses.push_back(record == nullptr ? 0 : record->loss);
    out.rates.push_back({0.1});
    out.skipped.push_back(false);
  }
  return out;
}

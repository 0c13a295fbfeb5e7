// SPDX-License-Identifier: Apache-2.0
// What the verifier's own repeats of one segment showed.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <potl/checks/request.hpp>

namespace potl::checks::detail {

/// Of a tensor or a group.
struct own_noise {
  double l2 = 0;
  double share = 0;    ///< of what the verifier's own replays moved it
  double count = 0;    ///< elements
  bool apart = false;  ///< from the elements that its group counts

  double of_one() const { return l2 > 0 ? l2 / std::sqrt(count) : 0; }
};

/// Of each repeat, the distances of all groups.
using repeated = std::vector<std::vector<group_distance>>;

/// Nothing: the group was not measured.
const group_distance* find(const std::vector<group_distance>& groups, const std::string& name);

/// The smaller of both updates: neither side can enlarge the measure alone. What is not finite is
/// not a measure: nothing is tolerated by it.
double update_of(const tensor_distance& one);
double update_of(const group_distance& one);

/// By path.
std::map<std::string, own_noise> noise_of_tensors(const repeated& from, const std::string& which);
own_noise noise_of_group(const repeated& from, const std::string& which);

}  // namespace potl::checks::detail

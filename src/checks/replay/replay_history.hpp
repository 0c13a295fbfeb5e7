// SPDX-License-Identifier: Apache-2.0
// Optimizers that keep a history, such as LBFGS: all of it is another one where a machine converged
// a step before. A count of steps beside averages excuses nothing.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <potl/checks/detail/state_distance.hpp>
#include <potl/checks/request.hpp>

namespace potl::checks::detail {

/// The objects, as paths that end with "/", of which a list differs: in its length, or in an
/// element if an optimizer keeps it. An average, which is delivered, may be kept in a list, too.
/// `forms_alone`: in its length.
inline std::set<std::string_view> with_histories(const std::vector<tensor_distance>& tensors,
                                                 bool forms_alone = false) {
  constexpr std::string_view digits = "0123456789";
  std::set<std::string_view> out;
  for (const tensor_distance& one : tensors) {
    std::string_view list = one.path;
    const std::size_t form = list.rfind(its_form), last = list.rfind('/');
    if (last == list.npos) continue;
    const bool elements = !forms_alone && list.substr(0, 11) == "optimizers/";
    if (form == list.npos && !elements) continue;
    if (form == list.npos && list.find_first_not_of(digits, last + 1) != list.npos) continue;
    list = list.substr(0, form == list.npos ? last : form);
    const std::size_t name = list.rfind('/') + 1;
    // Parameters have numbers, too: what an optimizer keeps of one is no list. A name may be empty.
    if (list.find_first_of(digits, name) != name) out.insert(list.substr(0, name));
  }
  return out;
}

/// Adds those of which a repeat has a list of another length, and so shows no noise of what is in
/// it.
inline void take_other_forms(const std::vector<std::vector<group_distance>>& repeats,
                             const std::string& which, std::set<std::string_view>& objects) {
  for (const std::vector<group_distance>& repeat : repeats) {
    for (const group_distance& group : repeat) {
      if (group.group == which) objects.merge(with_histories(group.tensors, true));
    }
  }
}

}  // namespace potl::checks::detail

// SPDX-License-Identifier: Apache-2.0
// Steps through two state trees side by side: what is not there, or is of another kind, is null.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include <potl/transcript/state.hpp>

namespace potl::checks {

using transcript::state_key;
using transcript::state_list;
using transcript::state_map;
using transcript::state_value;

template <class Kind>
const Kind* as(const state_value* value) {
  return value == nullptr ? nullptr : std::get_if<Kind>(&value->content);
}

inline const state_value* item(const state_list* list, std::size_t i) {
  return list != nullptr && i < list->size() ? &(*list)[i] : nullptr;
}

inline const state_value* item(const state_map* map, const state_key& key) {
  if (map == nullptr) return nullptr;
  const auto at = std::lower_bound(
      map->begin(), map->end(), key,
      [](const auto& member, const state_key& wanted) { return member.first < wanted; });
  return at != map->end() && at->first == key ? &at->second : nullptr;
}

inline std::string child(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "/" + name;
}

inline std::string key_text(const state_key& key) {
  if (const auto* number = std::get_if<std::int64_t>(&key)) return std::to_string(*number);
  return std::get<std::string>(key);
}

}  // namespace potl::checks

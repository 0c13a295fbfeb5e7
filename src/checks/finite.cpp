// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/finite.hpp>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <potl/numeric/detail/finite.hpp>

#include "checks/state_walk.hpp"

namespace potl::checks {
namespace {

using transcript::state_key;
using transcript::state_list;
using transcript::state_map;
using transcript::state_tensor;
using transcript::state_tuple;
using transcript::state_value;

struct section {
  std::string_view path;
  bool infinite_tensors;  // are ordinary
};

// The first that fits.
constexpr section sections[] = {
    {"model/parameters", false},
    {"ema/parameters", false},
    {"optimizers", false},
    {"model", true},
    {"ema", true},
    {"scaler", true},
};

const section* section_of(std::string_view path) {
  for (const section& one : sections) {
    const bool inside = path.substr(0, one.path.size()) == one.path &&
                        (path.size() == one.path.size() || path[one.path.size()] == '/');
    if (inside) return &one;
  }
  return nullptr;
}

using mask_names = std::vector<std::string>;

bool may_be_infinite(const section& where, const mask_names* masks, const std::string& path) {
  if (!where.infinite_tensors) return false;
  return masks == nullptr || std::find(masks->begin(), masks->end(), path) != masks->end();
}

std::string look(const state_value& value, const state_value* before, const mask_names* masks,
                 const std::string& path);

std::string look_at_tensor(const state_tensor& tensor, const state_tensor* before,
                           const mask_names* masks, const std::string& path) {
  const section* where = section_of(path);
  if (where == nullptr) return "";
  const bool comparable = before != nullptr && before->type == tensor.type &&
                          before->bytes.size() == tensor.bytes.size();
  const numeric::special_values found = numeric::special_values_of(
      tensor.type, tensor.bytes, comparable ? before->bytes : bytes_view{});
  if (found.nan) return path + " holds NaN";
  return found.infinite && !may_be_infinite(*where, masks, path) ? path + " holds an infinity" : "";
}

std::string look_at_list(const state_list& list, const state_list* before, const mask_names* masks,
                         const std::string& path) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    std::string found = look(list[i], item(before, i), masks, child(path, std::to_string(i)));
    if (!found.empty()) return found;
  }
  return "";
}

std::string look(const state_value& value, const state_value* before, const mask_names* masks,
                 const std::string& path) {
  if (const auto* map = as<state_map>(&value)) {
    for (const auto& [key, member] : *map) {
      std::string found =
          look(member, item(as<state_map>(before), key), masks, child(path, key_text(key)));
      if (!found.empty()) return found;
    }
  } else if (const auto* list = as<state_list>(&value)) {
    return look_at_list(*list, as<state_list>(before), masks, path);
  } else if (const auto* tuple = as<state_tuple>(&value)) {
    const auto* items = as<state_tuple>(before);
    return look_at_list(tuple->items, items == nullptr ? nullptr : &items->items, masks, path);
  } else if (const auto* tensor = as<state_tensor>(&value)) {
    return look_at_tensor(*tensor, as<state_tensor>(before), masks, path);
  } else if (const auto* number = as<double>(&value)) {
    if (std::isnan(*number) && section_of(path) != nullptr) return path + " is NaN";
  }
  return "";
}

}  // namespace

std::string not_finite(const state_value& recorded, const state_value* initial,
                       const std::vector<std::string>* masks) {
  return look(recorded, initial, masks, "");
}

result<std::string> not_finite(const transcript::evidence& run, const state_value& recorded) {
  std::string found = not_finite(recorded, nullptr);
  if (found.empty()) return found;
  const auto initial = run.load_state(0);
  if (!initial) {
    const errc code = initial.why().code;
    if (code == errc::missing || code == errc::mismatch) return found;
    return initial.why();
  }
  return not_finite(recorded, &initial.value().root());
}

}  // namespace potl::checks

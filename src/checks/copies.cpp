// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/copies.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <potl/numeric/detail/averages.hpp>

namespace potl::checks {
namespace {

using numeric::tensor_course;
using transcript::state;
using transcript::state_tensor;

// One tensor in each state; null where there is none.
using appearances = std::vector<const state_tensor*>;

// None where its type or shape changes.
std::optional<tensor_course> course_of(const appearances& all) {
  tensor_course out;
  const state_tensor* first = *std::find_if(all.begin(), all.end(), [](auto* one) { return one; });
  out.type = first->type;
  out.dims = first->dims;
  for (const state_tensor* one : all) {
    if (one != nullptr && (one->type != out.type || one->dims != out.dims)) return std::nullopt;
    out.values.push_back(one == nullptr ? bytes_view{} : one->bytes);
  }
  return out;
}

// What torch's AveragedModel has of a parameter.
std::string averaged_parameter(std::string_view path) {
  constexpr std::string_view part = "ema/", module = "/module.";
  if (path.substr(0, part.size()) != part) return "";
  std::string out = "model/" + std::string(path.substr(part.size()));
  if (const std::size_t at = out.find(module); at != std::string::npos) {
    out.replace(at, module.size(), "/");
  }
  return out;
}

}  // namespace

copies copies_of(std::span<const state> states, std::span<const std::vector<std::string>> places) {
  std::map<std::string, appearances> tensors;
  for (std::size_t i = 0; i < states.size(); ++i) {
    for (const state_tensor* one : states[i].tensors()) {
      tensors.try_emplace(one->path, states.size()).first->second[i] = one;
    }
  }
  std::set<std::string> known;
  std::vector<std::pair<std::string, tensor_course>> parameters;
  for (const std::vector<std::string>& paths : places) {
    known.insert(paths.begin(), paths.end());
    const auto at = std::find_if(paths.begin() + 1, paths.end(), [&](const std::string& path) {
      const auto found = tensors.find(path);
      return found != tensors.end() &&
             std::count(found->second.begin(), found->second.end(), nullptr) == 0;
    });
    if (at == paths.end()) continue;
    if (auto course = course_of(tensors.at(*at))) parameters.emplace_back(*at, std::move(*course));
  }
  copies out;
  for (const auto& [path, all] : tensors) {
    if (known.contains(path) || known.contains(path.substr(0, path.rfind('/')))) continue;
    std::vector<std::string> of;
    const std::string averaged = averaged_parameter(path);
    const auto own = course_of(all);
    for (const auto& [name, course] : parameters) {
      if (name == averaged) {
        of = {name};
        break;
      }
      if (own && numeric::is_average(*own, course)) of.push_back(name);
    }
    if (!of.empty()) out.emplace(path, std::move(of));
  }
  return out;
}

std::vector<still_elements> with_copies(std::vector<still_elements> still, const copies& all,
                                        std::uint64_t roundings) {
  std::map<std::string, std::vector<std::uint8_t>> masks;
  for (const still_elements& one : still) {
    for (const std::string& path : one.paths) masks.emplace(path, one.mask);
  }
  for (const auto& [path, names] : all) {
    std::vector<std::uint8_t> mask = masks[names.front()];
    for (const std::string& name : names) {
      const std::vector<std::uint8_t>& other = masks[name];
      mask.resize(std::min(mask.size(), other.size()));  // without such elements there is none
      for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = std::min(mask[i], other[i]);
    }
    if (!mask.empty()) still.push_back({{path}, std::move(mask), roundings});
  }
  return still;
}

}  // namespace potl::checks

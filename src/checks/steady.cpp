// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/steady.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "checks/state_walk.hpp"
#include "numeric/widen.hpp"

namespace potl::checks {
namespace {

using transcript::state_tensor;
using transcript::state_tuple;
using block = std::array<double, 1024>;

// What is seen of an element.
constexpr std::uint8_t noise = 0, steady = 1, still = 2;

const state_list* list_of(const state_value* value) {
  const auto* tuple = as<state_tuple>(value);
  return tuple == nullptr ? as<state_list>(value) : &tuple->items;
}

bool alike(const state_tensor* one, const state_tensor& other) {
  return one != nullptr && one->type == other.type && one->bytes.size() == other.bytes.size();
}

}  // namespace

steady_search::steady_search(const state_value& start, const state_value& replayed, double cap)
    : start_(start), replayed_(replayed), cap_(cap) {}

void steady_search::see(const state_value& repeat, bool shows_tensors) {
  shows_tensors_ = shows_tensors;
  walk(&start_, replayed_, &repeat, "");
}

void steady_search::walk(const state_value* start, const state_value& replayed,
                         const state_value* repeat, const std::string& path) {
  if (const auto* map = as<state_map>(&replayed)) {
    for (const auto& [key, value] : *map) {
      walk(item(as<state_map>(start), key), value, item(as<state_map>(repeat), key),
           child(path, key_text(key)));
    }
  } else if (const state_list* list = list_of(&replayed)) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      walk(item(list_of(start), i), (*list)[i], item(list_of(repeat), i),
           child(path, std::to_string(i)));
    }
  } else if (const auto* tensor = as<state_tensor>(&replayed)) {
    if (!info(tensor->type).floating || numeric::lanes_of(tensor->type) != 1) return;
    take(as<state_tensor>(start), *tensor, as<state_tensor>(repeat), tensors_[path]);
  }
}

void steady_search::take(const state_tensor* start, const state_tensor& replayed,
                         const state_tensor* repeat, seen_tensor& of) const {
  const std::size_t size = info(replayed.type).size, count = replayed.bytes.size() / size;
  if (of.marks.empty()) of.marks.assign(count, steady);
  if (!alike(repeat, replayed)) return of.marks.assign(count, noise);
  block before{}, here, there;
  double off = 0, by = 0, by_there = 0;
  of.moved = 0;
  for (std::size_t from = 0; from < count; from += here.size()) {
    const std::size_t many = std::min(here.size(), count - from);
    const auto read = [&](const state_tensor& one, block& to) {
      numeric::widen(one.type, one.bytes.data() + from * size, many, to.data());
    };
    if (alike(start, replayed)) read(*start, before);
    read(replayed, here);
    read(*repeat, there);
    for (std::size_t i = 0; i < many; ++i) {
      const double between = there[i] - here[i], own = here[i] - before[i];
      std::uint8_t& mark = of.marks[from + i];
      if (!(std::fabs(between) <= cap_ * std::fabs(own))) mark = noise;
      if (own != 0) ++of.moved;
      if (own == 0 && mark == steady) mark = still;
      off += between * between;
      by += own * own;
      by_there += (there[i] - before[i]) * (there[i] - before[i]);
    }
  }
  of.noisy = of.noisy || (shows_tensors_ && off > cap_ * cap_ * std::min(by, by_there));
}

bool steady_search::any_noisy() const {
  return std::ranges::any_of(tensors_, [](const auto& one) { return one.second.noisy; });
}

void steady_search::add(const steady_search& other) {
  for (auto& [path, of] : tensors_) {
    const auto also = other.tensors_.find(path);
    if (also == other.tensors_.end() || also->second.marks.size() != of.marks.size()) continue;
    std::ranges::transform(of.marks, also->second.marks, of.marks.begin(), [](auto a, auto b) {
      return a == steady || b == steady ? steady : std::min(a, b);
    });
  }
}

std::vector<still_elements> steady_search::found() const {
  std::vector<still_elements> out;
  for (const auto& [path, of] : tensors_) {
    const auto many = static_cast<std::size_t>(std::ranges::count(of.marks, steady));
    if (!of.noisy || 8 * many <= 24 + of.moved) continue;
    still_elements& one = out.emplace_back();
    one.paths = {path};
    for (const std::uint8_t mark : of.marks) one.mask.push_back(mark != noise);
  }
  return out;
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/steady.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "checks/state_walk.hpp"
#include "numeric/widen.hpp"

namespace potl::checks {
namespace {

using transcript::state_tensor;
using transcript::state_tuple;
using states = std::vector<const state_value*>;

constexpr std::size_t least_steady = 4;

class steady_walker {
 public:
  steady_walker(std::span<const steady_repeat> repeats, double cap)
      : repeats_(repeats), cap_(cap) {}

  void walk(const state_value* start, const state_value& replayed, const states& again,
            const std::string& path) {
    if (const auto* map = as<state_map>(&replayed)) {
      for (const auto& [key, value] : *map) {
        walk(item(as<state_map>(start), key), value,
             each(again, [&](const state_value* one) { return item(as<state_map>(one), key); }),
             child(path, key_text(key)));
      }
    } else if (const state_list* list = list_of(&replayed)) {
      for (std::size_t i = 0; i < list->size(); ++i) {
        walk(item(list_of(start), i), (*list)[i],
             each(again, [&](const state_value* one) { return item(list_of(one), i); }),
             child(path, std::to_string(i)));
      }
    } else if (const auto* tensor = as<state_tensor>(&replayed)) {
      take(as<state_tensor>(start), *tensor, again, path);
    }
  }

  std::vector<still_elements> out;

 private:
  static const state_list* list_of(const state_value* value) {
    const auto* tuple = as<state_tuple>(value);
    return tuple == nullptr ? as<state_list>(value) : &tuple->items;
  }

  template <class Step>
  static states each(const states& from, Step step) {
    states to;
    for (const state_value* one : from) to.push_back(step(one));
    return to;
  }

  static bool alike(const state_tensor* one, const state_tensor& other) {
    return one != nullptr && one->type == other.type && one->bytes.size() == other.bytes.size();
  }

  static std::vector<double> numbers(const state_tensor* from, std::size_t count) {
    std::vector<double> to(count);
    if (from != nullptr) numeric::widen(from->type, from->bytes.data(), count, to.data());
    return to;
  }

  void take(const state_tensor* start, const state_tensor& replayed, const states& again,
            const std::string& path) {
    if (!info(replayed.type).floating || numeric::lanes_of(replayed.type) != 1) return;
    const std::size_t count = replayed.bytes.size() / info(replayed.type).size;
    const std::vector<double> before = numbers(alike(start, replayed) ? start : nullptr, count);
    const std::vector<double> here = numbers(&replayed, count);
    std::vector<std::uint8_t> mask(count);
    std::size_t moved = 0;
    for (std::size_t i = 0; i < count; ++i) moved += mask[i] = here[i] != before[i] ? 1 : 0;
    bool noisy = false;
    for (std::size_t repeat = 0; repeat < again.size(); ++repeat) {
      const auto* other = as<state_tensor>(again[repeat]);
      if (!alike(other, replayed)) return;
      const std::vector<double> there = numbers(other, count);
      double off = 0, by = 0, by_there = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const double between = there[i] - here[i], own = here[i] - before[i];
        if (!(std::fabs(between) <= cap_ * std::fabs(own))) mask[i] = 0;
        off += between * between;
        by += own * own;
        by_there += (there[i] - before[i]) * (there[i] - before[i]);
      }
      noisy =
          noisy || (repeats_[repeat].shows_tensors && off > cap_ * cap_ * std::min(by, by_there));
    }
    const auto steady = static_cast<std::size_t>(std::count(mask.begin(), mask.end(), 1));
    if (noisy && steady >= least_steady && 4 * steady > moved)
      out.push_back({{path}, std::move(mask)});
  }

  std::span<const steady_repeat> repeats_;
  double cap_;
};

}  // namespace

std::vector<still_elements> steady_elements(const state_value& start, const state_value& replayed,
                                            std::span<const steady_repeat> repeats, double cap) {
  steady_walker all(repeats, cap);
  states ends;
  for (const steady_repeat& one : repeats) ends.push_back(one.end);
  all.walk(&start, replayed, ends, "");
  return all.out;
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/finite.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "widen.hpp"

namespace potl::numeric {
namespace {

constexpr std::size_t some_values = 512;
constexpr std::size_t scan_lanes = 8;  // independent sums, so that the compiler may use vectors

// Zero times anything is zero, but for what is not finite.
bool all_finite(const std::array<double, some_values>& values) noexcept {
  std::array<double, scan_lanes> sums{};
  for (std::size_t i = 0; i < some_values; i += scan_lanes) {
    for (std::size_t k = 0; k < scan_lanes; ++k) sums[k] += values[i + k] * 0.0;
  }
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum == 0;
}

}  // namespace

special_values special_values_of(dtype type, bytes_view values, bytes_view start) {
  special_values out;
  if (!info(type).floating) return out;
  const std::size_t size = info(type).size / lanes_of(type);
  const std::size_t total = values.size() / size;
  std::array<double, some_values> some{}, before{};
  for (std::size_t at = 0; at < total && !out.nan; at += some_values) {
    const std::size_t count = std::min(some_values, total - at);
    widen(type, values.data() + at * size, count, some.data());
    std::fill(some.begin() + static_cast<std::ptrdiff_t>(count), some.end(), 0.0);
    if (all_finite(some)) continue;
    before.fill(0);
    if (!start.empty()) widen(type, start.data() + at * size, count, before.data());
    for (std::size_t i = 0; i < count; ++i) {
      if (std::isnan(some[i])) out.nan = true;
      if (std::isinf(some[i]) && some[i] != before[i]) out.infinite = true;
    }
  }
  return out;
}

double first_element(dtype type, bytes_view values) {
  double out = 0;
  widen(type, values.data(), 1, &out);
  return out;
}

}  // namespace potl::numeric

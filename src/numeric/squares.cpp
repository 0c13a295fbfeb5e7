// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/squares.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

#include "widen.hpp"

namespace potl::numeric {
namespace {

bool any_negative(dtype type, bytes_view values) {
  constexpr std::size_t at_once = 512;
  const std::size_t size = info(type).size / lanes_of(type);
  const std::size_t total = values.size() / size;
  std::array<double, at_once> some{};
  for (std::size_t at = 0; at < total; at += at_once) {
    const std::size_t count = std::min(at_once, total - at);
    widen(type, values.data() + at * size, count, some.data());
    double least = 0;
    for (std::size_t i = 0; i < count; ++i) least = some[i] < least ? some[i] : least;
    if (least < 0) return true;
  }
  return false;
}

}  // namespace

const char* why_no_squares(dtype type, bytes_view values) {
  return any_negative(type, values) ? "holds a negative number, which no step makes there"
                                    : nullptr;
}

bool averages_squares(std::optional<double> momentum, dtype type, bytes_view first_values) {
  const bool extrapolates = momentum && !(0 <= *momentum && *momentum <= 1);
  return !extrapolates && !any_negative(type, first_values);
}

}  // namespace potl::numeric

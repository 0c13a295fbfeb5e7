// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/squares.hpp>

#include <algorithm>
#include <array>
#include <cmath>
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

// By Cauchy and Schwarz, with averages over one gradient and over 10,000 the root is 100 times
// smaller; Adam's usual ones allow 7.27 times, and a decaying largest size, Adamax's, 1.01 times.
constexpr double most_of_squares = 2e4, most_of_roots = 100;

bool is_outgrown(double mean, double square, double most) {
  constexpr double least = 1e-15;
  return std::fabs(mean) > least && mean * mean > most * square;
}

}  // namespace

bool outgrown(dtype type, bytes_view means_before, bytes_view squares_before, bytes_view means,
              bytes_view squares, bool are_roots) {
  constexpr std::size_t at_once = 512;
  const double most = are_roots ? most_of_roots : most_of_squares;
  const std::size_t size = info(type).size / lanes_of(type);
  const std::size_t total = means.size() / size;
  std::array<std::array<double, at_once>, 4> some{};
  for (std::size_t from = 0; from < total; from += at_once) {
    const std::size_t count = std::min(at_once, total - from);
    std::size_t row = 0;
    for (const bytes_view one : {means_before, squares_before, means, squares}) {
      std::array<double, at_once>& to = some[row++];
      if (!one.empty()) widen(type, one.data() + from * size, count, to.data());
    }
    for (std::size_t i = 0; are_roots && i < count; ++i) {
      for (const auto k : {std::size_t{1}, std::size_t{3}}) some[k][i] *= some[k][i];
    }
    for (std::size_t i = 0; i < count; ++i) {
      const bool before = is_outgrown(some[0][i], some[1][i], most);
      if (!before && is_outgrown(some[2][i], some[3][i], most)) return true;
    }
  }
  return false;
}

const char* why_no_squares(dtype type, bytes_view values) {
  return any_negative(type, values) ? "holds a negative number, which no step makes there"
                                    : nullptr;
}

bool averages_squares(std::optional<double> momentum, dtype type, bytes_view first_values) {
  const bool extrapolates = momentum && !(0 <= *momentum && *momentum <= 1);
  return !extrapolates && !any_negative(type, first_values);
}

}  // namespace potl::numeric

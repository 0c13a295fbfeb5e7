// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/squares.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include <potl/numeric/detail/distance.hpp>

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

// Roundings, averages in half precision, and schedules of the shares.
constexpr double slack = 4;
// The squares of smaller gradients are rounded to 0, whatever the type.
constexpr double least = 1e-15;

// What a square may have lost to roundings to 0: each step adds a share of a gradient's square, or
// nothing where that is below half of the smallest number.
double lost_square(dtype type, const moment_law& law) {
  const double half = smallest(type) / 2;
  return std::max(least * least, law.are_roots ? half * half : half / law.added);
}

}  // namespace

moment_law law_of_moments(double mean_share, double square_share, bool are_roots) {
  const double b = mean_share, c = square_share;
  moment_law out{std::numeric_limits<double>::infinity(), 0, 1, are_roots};
  if (0 <= c && c <= 1) out.kept = are_roots ? c * c : c;
  if (!are_roots) out.added = 0 <= c && c < 1 ? 1 - c : 0;
  if (are_roots && 0 <= b && b < c) out.most = std::pow((1 - b) / (1 - b / c), 2);
  if (!are_roots && b * b < c && c < 1) {
    out.most = (1 - b) * (1 - b) / ((1 - c) * (1 - b * b / c));
  }
  return out;
}

bool are_no_steps(dtype type, const moments& before, const moments& now, const moment_law& law,
                  std::uint64_t steps) {
  constexpr std::size_t at_once = 512;
  const double lost = lost_square(type, law);
  const auto is_outgrown = [most = slack * law.most, lost](double mean, double square) {
    return mean * mean > most * (square + lost);
  };
  const double kept = std::pow(law.kept, static_cast<double>(steps)) / slack;
  // A step rounds what it keeps. With `slack` this is enough for any number of steps and any share:
  // what is so small that roundings add up stands still.
  const double rounding = smallest(type);
  const std::size_t size = info(type).size / lanes_of(type);
  const std::size_t total = now.means.size() / size;
  std::array<std::array<double, at_once>, 4> some{};
  for (std::size_t from = 0; from < total; from += at_once) {
    const std::size_t count = std::min(at_once, total - from);
    std::size_t row = 0;
    for (const bytes_view one : {before.means, before.squares, now.means, now.squares}) {
      std::array<double, at_once>& to = some[row++];
      if (!one.empty()) widen(type, one.data() + from * size, count, to.data());
    }
    auto& [mean_before, square_before, mean, square] = some;
    for (std::size_t i = 0; i < count; ++i) {
      double unrounded = square[i] + rounding;
      if (law.are_roots) {
        unrounded *= unrounded;
        square_before[i] *= square_before[i];
        square[i] *= square[i];
      }
      if (square_before[i] > least * least && unrounded < kept * square_before[i]) return true;
      if (is_outgrown(mean_before[i], square_before[i])) continue;
      if (is_outgrown(mean[i], square[i])) return true;
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

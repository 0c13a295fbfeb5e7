// SPDX-License-Identifier: Apache-2.0
// Bodies of tile.hpp for integers as multiples of a power of two in double, whose sums are exact.
// For tile_kernels.hpp, in an unnamed namespace as there.
#pragma once

#include "grid.hpp"
#include "plane_kernels.hpp"
#include "tile.hpp"

namespace potl::numeric::conv {
namespace {

// Several vectors, so that one chain does not wait for itself; `last` results of the last.
template <class Wide, std::size_t Vectors>
void vectors_on_grid(const grid_task& t, std::int64_t first, std::int64_t last) {
  constexpr auto before = static_cast<std::int64_t>(Vectors - 1) * Wide::width;
  typename Wide::type sum[Vectors], grid[Vectors], minus[Vectors];
  const auto at = [](std::size_t j) { return static_cast<std::int64_t>(j) * Wide::width; };
  const auto some = [&](std::size_t j) { return j + 1 < Vectors ? Wide::width : last; };
  POTL_UNROLL
  for (std::size_t j = 0; j < Vectors; ++j) {
    sum[j] = Wide::zero();
    grid[j] = Wide::load_sums(t.grid + first + at(j), some(j));
    minus[j] = Wide::fma(grid[j], Wide::broadcast(-1), Wide::zero());
  }
  for (std::int64_t k = 0; k < t.depth; ++k) {
    const auto weight = Wide::broadcast(t.weights[k]);
    const float* const from = t.b + t.offsets[k] + first;
    POTL_UNROLL
    for (std::size_t j = 0; j < Vectors; ++j) {
      const auto x = Wide::add(Wide::load(from + at(j)), grid[j]);
      sum[j] = Wide::fma(weight, Wide::add(x, minus[j]), sum[j]);
    }
  }
  double all[Vectors * Wide::width];
  POTL_UNROLL
  for (std::size_t j = 0; j < Vectors; ++j)
    Wide::store_some(all + at(j), Wide::width, Wide::canonical(sum[j]));
  // Never -0.
  float* const c = t.c + first;
  if (last == Wide::width) {
    for (std::int64_t i = 0; i < before + Wide::width; ++i)
      c[i] = static_cast<float>(all[i]) + 0.0F;
  } else {
    for (std::int64_t i = 0; i < before + last; ++i) c[i] = static_cast<float>(all[i]) + 0.0F;
  }
}

template <class Wide>
void filter_on_grid(const grid_task& task) {
  const grid_task t = task;
  std::int64_t i = 0;
  for (; i + 4 * Wide::width <= t.count; i += 4 * Wide::width)
    vectors_on_grid<Wide, 4>(t, i, Wide::width);
  const std::int64_t left = t.count - i, vectors = (left + Wide::width - 1) / Wide::width;
  const std::int64_t last = left - (vectors - 1) * Wide::width;
  if (vectors == 4) vectors_on_grid<Wide, 4>(t, i, last);
  if (vectors == 3) vectors_on_grid<Wide, 3>(t, i, last);
  if (vectors == 2) vectors_on_grid<Wide, 2>(t, i, last);
  if (vectors == 1) vectors_on_grid<Wide, 1>(t, i, last);
}

template <class Wide, std::size_t Taps>
void some_dots(const dots_task& t, std::int64_t first) {
  typename Wide::type sum[Taps];
  const float* from[Taps];
  POTL_UNROLL
  for (std::size_t tap = 0; tap < Taps; ++tap) {
    sum[tap] = Wide::zero();
    from[tap] = t.b + t.taps[first + static_cast<std::int64_t>(tap)];
  }
  for (std::int64_t i = 0; i < t.count; i += Wide::width) {
    const auto a = Wide::load(t.a + i);
    POTL_UNROLL
    for (std::size_t tap = 0; tap < Taps; ++tap)
      sum[tap] = Wide::fma(a, Wide::load(from[tap] + i), sum[tap]);
  }
  POTL_UNROLL
  for (std::size_t tap = 0; tap < Taps; ++tap) {
    double lanes[Wide::width];
    Wide::store_some(lanes, Wide::width, sum[tap]);
    for (const double one : lanes) t.c[first + static_cast<std::int64_t>(tap)] += one;
  }
}

template <class Wide>
void dots(const dots_task& task) {
  const dots_task t = task;
  std::int64_t tap = 0;
  for (; tap + 8 < t.tap_count; tap += 9) some_dots<Wide, 9>(t, tap);
  for (; tap + 2 < t.tap_count; tap += 3) some_dots<Wide, 3>(t, tap);
  for (; tap < t.tap_count; ++tap) some_dots<Wide, 1>(t, tap);
}

inline bool grids(const std::uint32_t* largest, std::int64_t count, int bits, double* grid) {
  std::uint32_t within = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    grid[i] = grid_of(largest[i], bits);
    within &= is_within(largest[i], bits) ? 1U : 0U;
  }
  return within != 0;
}

inline void round_to_grid(const float* source, std::int64_t count, double grid, double limit,
                          float* target) {
  for (std::int64_t i = 0; i < count; ++i) {
    double x = (static_cast<double>(source[i]) + grid) - grid;
    x = x < limit ? x : limit;
    x = x > -limit ? x : -limit;
    target[i] = static_cast<float>(x);
  }
}

}  // namespace
}  // namespace potl::numeric::conv

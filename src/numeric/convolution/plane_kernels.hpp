// SPDX-License-Identifier: Apache-2.0
// Bodies of tile.hpp for planes: copies with their padding, and the sums of depthwise convolutions,
// where the lanes of both operands differ. For tile_kernels.hpp, in an unnamed namespace as there.
#pragma once

#include "tile.hpp"

// The sums stay in registers only when all loops over them are unrolled.
#if defined(__clang__)
#define POTL_UNROLL _Pragma("unroll")
#else
#define POTL_UNROLL _Pragma("GCC unroll 16")
#endif

namespace potl::numeric::conv {
namespace {

// A line with its padding is one vector: a load that skips lanes brings the zeros along.
template <class Lanes>
void fill_narrow_plane(const plane_task& t) {
  const float* source = t.source - t.low;
  float* target = t.target;
  const auto outside = Lanes::broadcast(t.outside);
  for (std::int64_t i = 0; i < t.before; ++i, target += t.pitch) Lanes::store(target, outside);
  const auto inside = Lanes::between(t.low, t.low + t.count);
  for (std::int64_t line = 0; line < t.lines; ++line) {
    Lanes::store(target, Lanes::load_between(source, inside));
    source += t.source_line;
    target += t.pitch;
  }
  for (std::int64_t i = 0; i < t.after; ++i, target += t.pitch) Lanes::store(target, outside);
}

// Lanes beyond `count` are stored as zeros, and then overwritten by what comes next.
template <class Lanes>
void fill_plane(const plane_task& task) {
  const plane_task t = task;
  if constexpr (Lanes::width > 1) {
    if (t.step == 1 && t.pitch <= Lanes::width) return fill_narrow_plane<Lanes>(t);
  }
  const float* source = t.source;
  float* target = t.target;
  const auto outside = Lanes::broadcast(t.outside);
  for (std::int64_t i = 0; i < t.before * t.pitch; i += Lanes::width)
    Lanes::store(target + i, outside);
  target += t.before * t.pitch;
  for (std::int64_t line = 0; line < t.lines; ++line) {
    for (std::int64_t i = 0; i < t.low; i += Lanes::width) Lanes::store(target + i, outside);
    float* const to = target + t.low;
    std::int64_t i = 0;
    for (; i + Lanes::width < t.count; i += Lanes::width)
      Lanes::store(to + i, t.step == 1 ? Lanes::load(source + i)
                                       : Lanes::load_second(source + 2 * i, Lanes::width));
    if (i < t.count) {
      Lanes::store(to + i, t.step == 1 ? Lanes::load_some(source + i, t.count - i)
                                       : Lanes::load_second(source + 2 * i, t.count - i));
      i += Lanes::width;
    }
    for (; t.low + i < t.pitch; i += Lanes::width) Lanes::store(to + i, outside);
    source += t.source_line;
    target += t.pitch;
  }
  for (std::int64_t i = 0; i < t.after * t.pitch; i += Lanes::width)
    Lanes::store(target + i, outside);
}

template <class Lanes>
void every_second(const float* source, std::int64_t count, float* target) {
  std::int64_t i = 0;
  for (; i + Lanes::width <= count; i += Lanes::width)
    Lanes::store(target + i, Lanes::load_second(source + 2 * i, Lanes::width));
  if (i < count)
    Lanes::store_some(target + i, count - i, Lanes::load_second(source + 2 * i, count - i));
}

// So many lines at once that the chains hide each other's latency.
template <class Lanes, std::size_t Lines, std::size_t Vectors>
void filter_lines(const filter_task& task, std::int64_t lines, const float* b, float* c,
                  std::int64_t last) {
  const filter_task t = task;
  constexpr auto together = static_cast<std::int64_t>(Lines);
  for (std::int64_t line = 0; line < lines; line += together) {
    typename Lanes::type sum[Lines][Vectors];
    POTL_UNROLL
    for (std::size_t i = 0; i < Lines; ++i) {
      POTL_UNROLL
      for (std::size_t j = 0; j < Vectors; ++j) sum[i][j] = Lanes::zero();
    }
    for (std::int64_t k = 0; k < t.depth; ++k) {
      const auto weight = Lanes::broadcast(t.weights[k]);
      const float* from = b + t.offsets[k];
      POTL_UNROLL
      for (std::size_t i = 0; i < Lines; ++i, from += t.b_line) {
        POTL_UNROLL
        for (std::size_t j = 0; j < Vectors; ++j)
          sum[i][j] = Lanes::fma(
              weight, Lanes::load(from + static_cast<std::int64_t>(j) * Lanes::width), sum[i][j]);
      }
    }
    POTL_UNROLL
    for (std::size_t i = 0; i < Lines; ++i, c += t.c_line) {
      POTL_UNROLL
      for (std::size_t j = 0; j < Vectors; ++j) {
        float* const at = c + static_cast<std::int64_t>(j) * Lanes::width;
        if (j + 1 < Vectors)
          Lanes::store(at, Lanes::canonical(sum[i][j]));
        else
          Lanes::store_some(at, last, Lanes::canonical(sum[i][j]));
      }
    }
    b += together * t.b_line;
  }
}

template <class Lanes, std::size_t Lines, std::size_t Vectors>
void filter_columns(const filter_task& task, std::int64_t column) {
  const std::int64_t whole = task.lines - task.lines % static_cast<std::int64_t>(Lines);
  const std::int64_t left =
      task.length - column - static_cast<std::int64_t>(Vectors - 1) * Lanes::width;
  const std::int64_t last = left < Lanes::width ? left : Lanes::width;
  const float* const b = task.b + column;
  float* const c = task.c + column;
  filter_lines<Lanes, Lines, Vectors>(task, whole, b, c, last);
  filter_lines<Lanes, 1, Vectors>(task, task.lines - whole, b + whole * task.b_line,
                                  c + whole * task.c_line, last);
}

template <class Lanes>
void filter(const filter_task& task) {
  std::int64_t column = 0;
  for (; column + 3 * Lanes::width < task.length; column += 4 * Lanes::width)
    filter_columns<Lanes, 2, 4>(task, column);
  if (column >= task.length) return;
  const std::int64_t vectors = (task.length - column + Lanes::width - 1) / Lanes::width;
  if (vectors == 3)
    filter_columns<Lanes, 3, 3>(task, column);
  else if (vectors == 2)
    filter_columns<Lanes, 4, 2>(task, column);
  else
    filter_columns<Lanes, 8, 1>(task, column);
}

template <class Lanes, std::size_t Taps>
void some_taps(const taps_task& task) {
  typename Lanes::type sum[Taps];
  std::int64_t at[Taps];
  POTL_UNROLL
  for (std::size_t i = 0; i < Taps; ++i) {
    sum[i] = Lanes::zero();
    at[i] = task.taps[i];
  }
  const float* a = task.a;
  const float* const b = task.b;
  const std::int64_t* const end = task.offsets + task.depth;
  for (const std::int64_t* offset = task.offsets; offset != end; ++offset, a += Lanes::width) {
    const auto left = Lanes::load(a);
    const float* const from = b + *offset;
    POTL_UNROLL
    for (std::size_t i = 0; i < Taps; ++i)
      sum[i] = Lanes::fma(left, Lanes::load(from + at[i]), sum[i]);
  }
  POTL_UNROLL
  for (std::size_t i = 0; i < Taps; ++i)
    Lanes::store(task.c + static_cast<std::int64_t>(i) * task.c_tap, Lanes::canonical(sum[i]));
}

template <class Lanes, std::size_t Taps>
void taps_of_count(const taps_task& task) {
  if (task.count == static_cast<std::int64_t>(Taps))
    some_taps<Lanes, Taps>(task);
  else if constexpr (Taps > 1)
    taps_of_count<Lanes, Taps - 1>(task);
}

template <class Lanes>
void taps(const taps_task& task) {
  taps_of_count<Lanes, most_taps>(task);
}

}  // namespace
}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// What tiles of one broadcast operand share, and the body of rows_task of tile.hpp. For
// tile_kernels.hpp, in an unnamed namespace as there.
#pragma once

#include "plane_kernels.hpp"

namespace potl::numeric::conv {
namespace {

// sum[j] += one * vectors[j]. A multiply-add that takes `one` from memory saves an instruction, and
// where a neighbour shares the core, instructions are what is scarce; but of some vectors it loads
// `one` as often: every second row of a tall tile, as far as loads keep up.
template <class Lanes, std::size_t Rows, std::size_t Vectors>
inline __attribute__((always_inline)) void add_products(
    std::size_t row, const typename Lanes::sum* one, const typename Lanes::type (&vectors)[Vectors],
    typename Lanes::type (&sum)[Vectors]) {
  if constexpr (Lanes::multiplies_memory && (Vectors == 1 || (Vectors == 2 && Rows > 8))) {
    if (Vectors == 1 || row % 2 == 1) {
      POTL_UNROLL
      for (std::size_t j = 0; j < Vectors; ++j) sum[j] = Lanes::fma_at(one, vectors[j], sum[j]);
      return;
    }
  }
  const typename Lanes::type all = Lanes::broadcast(*one);
  POTL_UNROLL
  for (std::size_t j = 0; j < Vectors; ++j) sum[j] = Lanes::fma(all, vectors[j], sum[j]);
}

// Arguments by value: the compiler cannot know that stores leave the task alone.
template <class Lanes, std::size_t Rows, std::size_t Vectors>
inline __attribute__((always_inline)) void store_rows(
    const typename Lanes::type (&sum)[Rows][Vectors], std::int64_t c_row, bool add, float* c) {
  POTL_UNROLL
  for (std::size_t i = 0; i < Rows; ++i, c += c_row) {
    POTL_UNROLL
    for (std::size_t j = 0; j < Vectors; ++j) {
      float* const at = c + static_cast<std::int64_t>(j) * Lanes::width;
      typename Lanes::type value = sum[i][j];
      if (add) value = Lanes::add(Lanes::load(at), value);
      Lanes::store(at, Lanes::canonical(value));
    }
  }
}

template <class Lanes, std::size_t Vectors, std::size_t Rows, bool Copies>
void row_tile(const rows_task& task) {
  using vector = typename Lanes::type;
  // One pointer for four rows, and two offsets: a pointer for each would not leave enough
  // registers.
  constexpr std::size_t fours = (Rows + 3) / 4, together = 4;
  vector sum[Rows][Vectors];
  POTL_UNROLL
  for (std::size_t i = 0; i < Rows; ++i) {
    POTL_UNROLL
    for (std::size_t j = 0; j < Vectors; ++j) sum[i][j] = Lanes::zero();
  }
  const float *b = task.b, *next = task.next;
  [[maybe_unused]] float* copy = task.copy;
  // Results are fetched while the chains run, a row at a time: all of them at once would keep what
  // the chains read waiting.
  const float* result = task.c;
  const float* const results_end = task.c + static_cast<std::int64_t>(Rows) * task.c_row;
  const std::int64_t b_row = task.b_row, next_row = task.next_row;
  std::int64_t one = task.a_row * std::int64_t{sizeof(float)}, three = 3 * one;
  for (const row_run* run = task.runs; run != task.runs + task.count; ++run) {
    const float* four[fours];
    POTL_UNROLL
    for (std::size_t i = 0; i < fours; ++i)
      four[i] = run->from + task.a + 4 * static_cast<std::int64_t>(i) * task.a_row;
    const auto step = [&](std::size_t k) __attribute__((always_inline)) {
      vector right[Vectors];
      POTL_UNROLL
      for (std::size_t j = 0; j < Vectors; ++j)
        right[j] = Lanes::load(b + static_cast<std::int64_t>(j) * Lanes::width);
      if constexpr (Copies) {
        POTL_UNROLL
        for (std::size_t j = 0; j < Vectors; ++j, copy += Lanes::width)
          Lanes::store(copy, right[j]);
      }
      __builtin_prefetch(next, 0, 2);
      b += b_row;
      next += next_row;
      POTL_UNROLL
      for (std::size_t i = 0; i < Rows; ++i) {
        const char* const first = reinterpret_cast<const char*>(four[i / 4] + k);
        const char* const at = i % 4 == 0   ? first
                               : i % 4 == 1 ? first + one
                               : i % 4 == 2 ? first + 2 * one
                                            : first + three;
        add_products<Lanes, Rows>(i, reinterpret_cast<const float*>(at), right, sum[i]);
      }
    };
    std::int64_t k = run->length;
    for (; k >= std::int64_t{together}; k -= std::int64_t{together}) {
      // The compiler shall not turn offsets back into pointers.
      __asm__ volatile("" : "+r"(one), "+r"(three));
      POTL_UNROLL
      for (std::size_t j = 0; j < Vectors; ++j)
        __builtin_prefetch(result + static_cast<std::int64_t>(j) * Lanes::width, 1);
      result += task.c_row;
      if (result == results_end) result = task.c;
      POTL_UNROLL
      for (std::size_t at = 0; at < together; ++at) step(at);
      POTL_UNROLL
      for (std::size_t i = 0; i < fours; ++i) four[i] += together;
    }
    for (; k > 0; --k) {
      step(0);
      POTL_UNROLL
      for (std::size_t i = 0; i < fours; ++i) ++four[i];
    }
  }
  store_rows<Lanes>(sum, task.c_row, task.add, task.c);
}

template <class Lanes, std::size_t Vectors, std::size_t Rows>
constexpr void set_row_tiles(row_tiles& all) {
  all.tile[Vectors][Rows] = row_tile<Lanes, Vectors, Rows, false>;
  all.copying[Vectors][Rows] = row_tile<Lanes, Vectors, Rows, true>;
  if constexpr (Rows > 1) set_row_tiles<Lanes, Vectors, Rows - 1>(all);
}

}  // namespace
}  // namespace potl::numeric::conv

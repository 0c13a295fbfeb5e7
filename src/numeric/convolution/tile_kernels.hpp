// SPDX-License-Identifier: Apache-2.0
// The bodies of tile.hpp over a type of lanes. Included once per instruction set; everything is in
// an unnamed namespace, because the linker must not merge what was compiled for different ones.
#pragma once

#include "grid_kernels.hpp"
#include "plane_kernels.hpp"
#include "row_kernels.hpp"

namespace potl::numeric::conv {
namespace {

template <class Lanes, std::size_t Rows, std::size_t Vectors>
void tile(const tile_task<typename Lanes::sum>& task) {
  using vector = typename Lanes::type;
  using value_type = typename Lanes::sum;
  vector sum[Rows][Vectors];
  const float* b[Vectors];
  POTL_UNROLL
  for (std::size_t j = 0; j < Vectors; ++j) b[j] = task.b + task.vectors[j];
  POTL_UNROLL
  for (std::size_t i = 0; i < Rows; ++i) {
    POTL_UNROLL
    for (std::size_t j = 0; j < Vectors; ++j) sum[i][j] = Lanes::zero();
  }
  const value_type* a = task.a;
  const std::int64_t a_step = task.a_step;
  const std::int64_t* const end = task.offsets + task.depth;
  // Results are fetched while the chains run.
  POTL_UNROLL
  for (std::size_t i = 0; i < Rows; ++i) {
    POTL_UNROLL
    for (std::size_t j = 0; j < Vectors; ++j)
      __builtin_prefetch(task.c + static_cast<std::int64_t>(i) * task.c_row +
                             static_cast<std::int64_t>(j) * Lanes::width,
                         1);
  }
  for (const std::int64_t* offset = task.offsets; offset != end; ++offset) {
    vector right[Vectors];
    POTL_UNROLL
    for (std::size_t j = 0; j < Vectors; ++j) right[j] = Lanes::load(b[j] + *offset);
    POTL_UNROLL
    for (std::size_t i = 0; i < Rows; ++i) add_products<Lanes, Rows>(i, a + i, right, sum[i]);
    a += a_step;
  }
  // Copied: the compiler cannot know that stores leave the task alone.
  const std::int64_t c_row = task.c_row, last = task.last;
  const bool add = task.add;
  value_type* c = task.c;
  POTL_UNROLL
  for (std::size_t i = 0; i < Rows; ++i, c += c_row) {
    POTL_UNROLL
    for (std::size_t j = 0; j < Vectors; ++j) {
      value_type* const at = c + static_cast<std::int64_t>(j) * Lanes::width;
      const std::int64_t some = j + 1 < Vectors ? Lanes::width : last;
      vector value = sum[i][j];
      if (add) value = Lanes::add(Lanes::load_sums(at, some), value);
      Lanes::store_some(at, some, Lanes::canonical(value));
    }
  }
}

template <class Lanes, std::size_t Vectors, std::size_t Rows, std::size_t Run, std::int64_t Step>
void line_tile(const line_task& task) {
  using vector = typename Lanes::type;
  vector sum[Rows][Vectors];
  if (const float* begun = task.begun; begun == nullptr) {
    POTL_UNROLL
    for (std::size_t i = 0; i < Rows; ++i) {
      POTL_UNROLL
      for (std::size_t j = 0; j < Vectors; ++j) sum[i][j] = Lanes::zero();
    }
  } else {
    POTL_UNROLL
    for (std::size_t i = 0; i < Rows; ++i, begun += task.c_row) {
      POTL_UNROLL
      for (std::size_t j = 0; j < Vectors; ++j)
        sum[i][j] = Lanes::load(begun + static_cast<std::int64_t>(j) * Lanes::width);
    }
  }
  const float* a = task.a;
  const float* const b = task.b;
  const std::int64_t* const places = task.places;
  constexpr std::size_t run = Run == 0 ? 1 : Run;
  const std::int64_t a_row = task.a_row;
  const std::int64_t* const end = task.offsets + task.depth;
  for (const std::int64_t* offset = task.offsets; offset != end; ++offset, a += a_row) {
    vector left[Vectors];
    POTL_UNROLL
    for (std::size_t j = 0; j < Vectors; ++j)
      left[j] = Lanes::load(a + static_cast<std::int64_t>(j) * Lanes::width);
    const float* const right = b + *offset;
    POTL_UNROLL
    for (std::size_t i = 0; i < Rows; ++i) {
      const float* const one =
          Run == 0 ? right + static_cast<std::int64_t>(i) * Step
                   : right + places[i - i % run] + static_cast<std::int64_t>(i % run);
      add_products<Lanes, Rows>(i, one, left, sum[i]);
    }
  }
  store_rows<Lanes>(sum, task.c_row, task.add, task.c);
}

template <class Lanes>
void pack(const pack_task& task) {
  for (std::int64_t k = 0; k < task.depth; ++k) {
    const float* const source = task.source + task.offsets[k];
    float* target = task.target + k * task.width;
    const float* const end = target + task.width;
    for (const segment* one = task.segments; one != task.segments + task.count; ++one) {
      std::int64_t i = 0;
      for (; i + Lanes::width <= one->length; i += Lanes::width) {
        // Other panels come first: their elements of this line are read soon.
        __builtin_prefetch(source + one->source + i + 128);
        Lanes::store(target + i, Lanes::load(source + one->source + i));
      }
      if (i < one->length) {
        const auto rest = Lanes::load_some(source + one->source + i, one->length - i);
        // The lanes beyond are overwritten by the segment that comes next.
        if (target + i + Lanes::width <= end)
          Lanes::store(target + i, rest);
        else
          Lanes::store_some(target + i, one->length - i, rest);
      }
      target += one->length;
    }
  }
}

template <class Lanes>
void add(const float* source, std::int64_t count, float* target) {
  for (std::int64_t i = 0; i < count; i += Lanes::width) {
    const std::int64_t some = count - i < Lanes::width ? count - i : Lanes::width;
    const auto sum =
        Lanes::add(Lanes::load_some(target + i, some), Lanes::load_some(source + i, some));
    Lanes::store_some(target + i, some, Lanes::canonical(sum));
  }
}

template <class Wide>
void add_squares(const float* source, std::int64_t count, double* target) {
  for (std::int64_t i = 0; i < count; i += Wide::width) {
    const std::int64_t some = count - i < Wide::width ? count - i : Wide::width;
    const auto x = Wide::load_some(source + i, some);
    Wide::store_some(target + i, some, Wide::fma(x, x, Wide::load_sums(target + i, some)));
  }
}

template <class Wide>
void root_of_sums(const double* source, const std::int64_t* offsets, std::int64_t depth,
                  double factor, std::int64_t count, double* target) {
  for (std::int64_t i = 0; i < count; i += Wide::width) {
    const std::int64_t some = count - i < Wide::width ? count - i : Wide::width;
    auto sum = Wide::zero();
    for (std::int64_t k = 0; k < depth; ++k)
      sum = Wide::add(sum, Wide::load_sums(source + offsets[k] + i, some));
    Wide::store_some(target + i, some,
                     Wide::fma(Wide::broadcast(factor), Wide::root(sum), Wide::zero()));
  }
}

template <class Lanes, std::size_t Vectors, std::size_t Rows>
constexpr void set_tiles(tiles_of<typename Lanes::sum>& all) {
  all.tile[Vectors][Rows] = tile<Lanes, Rows, Vectors>;
  if constexpr (Rows > 1) set_tiles<Lanes, Vectors, Rows - 1>(all);
}

// Rows1 ... Rows4: rows of the largest tile with 1 ... 4 vectors.
template <class Lanes, int Rows1, int Rows2, int Rows3, int Rows4>
constexpr auto tiles() {
  tiles_of<typename Lanes::sum> all{};
  all.lanes = Lanes::width;
  all.rows = {0, Rows1, Rows2, Rows3, Rows4};
  set_tiles<Lanes, 1, Rows1>(all);
  set_tiles<Lanes, 2, Rows2>(all);
  set_tiles<Lanes, 3, Rows3>(all);
  set_tiles<Lanes, 4, Rows4>(all);
  return all;
}

template <class Lanes, std::size_t Vectors, std::size_t Rows>
constexpr void set_line_tiles(line_tiles& all) {
  all.tile[Vectors][Rows] = line_tile<Lanes, Vectors, Rows, 0, 1>;
  all.every_second[Vectors][Rows] = line_tile<Lanes, Vectors, Rows, 0, 2>;
  all.scattered[Vectors][Rows] = line_tile<Lanes, Vectors, Rows, 1, 1>;
  if constexpr (Rows % 3 == 0) all.by_three[Vectors][Rows] = line_tile<Lanes, Vectors, Rows, 3, 1>;
  if constexpr (Rows > 1) set_line_tiles<Lanes, Vectors, Rows - 1>(all);
}

template <class Lanes, class Wide, int LineRows>
constexpr kernels kernels_of(const tiles_of<float>& single, const tiles_of<double>& wide) {
  kernels all{};
  all.line.rows = LineRows;
  set_line_tiles<Lanes, 1, LineRows>(all.line);
  set_line_tiles<Lanes, 2, LineRows>(all.line);
  all.rows.rows = LineRows;
  set_row_tiles<Lanes, 1, LineRows>(all.rows);
  set_row_tiles<Lanes, 2, LineRows>(all.rows);
  all.single = single;
  all.wide = wide;
  all.pack = pack<Lanes>;
  all.fill_plane = fill_plane<Lanes>;
  all.filter = filter<Lanes>;
  all.grids = grids;
  all.filter_on_grid = filter_on_grid<Wide>;
  all.dots = dots<Wide>;
  all.round_to_grid = round_to_grid;
  all.taps = taps<Lanes>;
  all.add = add<Lanes>;
  all.transpose = Lanes::transpose;
  all.every_second = every_second<Lanes>;
  all.interleave = Lanes::interleave;
  all.add_squares = add_squares<Wide>;
  all.root_of_sums = root_of_sums<Wide>;
  return all;
}

}  // namespace
}  // namespace potl::numeric::conv

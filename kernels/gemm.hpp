// SPDX-License-Identifier: Apache-2.0
// The body of ord32's matrix product (numeric/gemm.hpp). Private: needs block.hpp's macros.
//
// Exact because every element of C belongs to one thread, which goes through k in ascending order:
// one fused multiply-add each, from +0 in each chunk of 512, and adds a chunk's sum to C in memory.
// Tiles, threads and the order of blocks decide who computes an element and never how. Nothing is
// filled up along k: fma(0, 0, -0) is +0.
#pragma once

#include <cstdint>

#include <potl/numeric/gemm.hpp>

#include "block.hpp"

namespace potl::cuda {

/// Products of one shape on a device.
struct products {
  numeric::gemm_batch batch;
  numeric::matrix<const float> a, b;
  numeric::matrix<float> c;
};

/// How the elements of C are shared out: a block has Rows x Columns of them, a thread 8 x 8.
template <unsigned Rows, unsigned Columns, unsigned Depth>
struct gemm_tile {
  static constexpr unsigned rows = Rows, columns = Columns;
  static constexpr unsigned depth = Depth;  ///< k that are in shared memory at a time
  static constexpr unsigned threads = Rows * Columns / 64;
  static_assert(numeric::ord_chunk % Depth == 0);
  static_assert(Rows * Depth % threads == 0 && Columns * Depth % threads == 0);
  static_assert(threads % Depth == 0 && threads % Rows == 0 && threads % Columns == 0);
};

/// Tiles of one product.
template <class Tile>
POTL_BODY std::int64_t tiles_down(const products& p) {
  return (p.c.rows + Tile::rows - 1) / Tile::rows;
}
template <class Tile>
POTL_BODY std::int64_t tiles_across(const products& p) {
  return (p.c.columns + Tile::columns - 1) / Tile::columns;
}

/// Two slices of `Lines` rows of A (or columns of B), each in the order of k: one is computed with,
/// the other one filled. The spare four keep writes of one warp in different banks.
template <class Tile, unsigned Lines, class Block>
struct gemm_slices {
  static constexpr unsigned pitch = Lines + 4;
  typename Block::template shared<float, 2 * Tile::depth * pitch> of;
};

/// Puts what a thread read of a slice, by a route like gemm_route, where it belongs.
template <class Tile, class Route, unsigned Lines, class Block>
POTL_BODY void put_slice(const Route& way, const float (&values)[Route::share],
                         gemm_slices<Tile, Lines, Block>& to, unsigned which, unsigned thread) {
  POTL_UNROLL
  for (unsigned i = 0; i < Route::share; ++i) {
    const unsigned k = way.k(thread) + i * way.k_stride;
    const unsigned line = way.line(thread) + i * way.line_stride;
    Block::write(to.of, (which * Tile::depth + k) * to.pitch + line, values[i], thread);
  }
}

template <class Tile, class Block>
struct gemm_memory {
  gemm_slices<Tile, Tile::rows, Block> a;
  gemm_slices<Tile, Tile::columns, Block> b;
};

template <class Tile, unsigned Lines>
class gemm_share;

/// How the threads bring slices from memory: neighbours read along the dimension that is denser
/// there. The same for all threads.
template <class Tile, unsigned Lines>
struct gemm_route {
  using share_type = gemm_share<Tile, Lines>;
  static constexpr unsigned share = Lines * Tile::depth / Tile::threads;

  /// `lines`: [line][k], of which line `first` is the tile's first one.
  POTL_BODY gemm_route(const numeric::matrix<const float>& lines, std::int64_t first)
      : at(lines.data + first * lines.row_stride),
        line_step(lines.row_stride),
        k_step(lines.column_stride),
        lines_left(lines.rows - first) {
    const std::int64_t k_gap = k_step < 0 ? -k_step : k_step;
    along_k = k_gap < (line_step < 0 ? -line_step : line_step);
    line_stride = along_k ? Tile::threads / Tile::depth : 0;
    k_stride = along_k ? 0 : Tile::threads / Lines;
    step = line_stride * line_step + k_stride * k_step;
  }

  /// Of the first element of a thread's share; the others are `line_stride` and `k_stride` apart.
  POTL_BODY unsigned line(unsigned thread) const {
    return along_k ? thread / Tile::depth : thread % Lines;
  }
  POTL_BODY unsigned k(unsigned thread) const {
    return along_k ? thread % Tile::depth : thread / Lines;
  }

  const float* at;
  std::int64_t line_step, k_step, lines_left, step;
  unsigned line_stride, k_stride;
  bool along_k;
};

/// A thread's share of a slice, on its way.
template <class Tile, unsigned Lines>
class gemm_share {
 public:
  using route = gemm_route<Tile, Lines>;

  POTL_BODY void begin(const route& way, unsigned thread) {
    at_ = way.at + way.line(thread) * way.line_step + way.k(thread) * way.k_step;
    inside_ = 0;
    for (unsigned i = 0; i < route::share; ++i) {
      if (way.line(thread) + i * way.line_stride < way.lines_left) inside_ |= 1U << i;
    }
  }

  /// Reads the next slice, of which `left` k are there.
  POTL_BODY void fetch(const route& way, std::int64_t left, unsigned thread) {
    POTL_UNROLL
    for (unsigned i = 0; i < route::share; ++i) {
      const bool is_there = (inside_ >> i & 1U) != 0 && way.k(thread) + i * way.k_stride < left;
      value_[i] = is_there ? at_[i * way.step] : 0.0F;
    }
    at_ += Tile::depth * way.k_step;
  }

  /// Puts what was read where it belongs.
  template <class Block>
  POTL_BODY void put(const route& way, gemm_slices<Tile, Lines, Block>& to, unsigned which,
                     unsigned thread) const {
    put_slice<Tile>(way, value_, to, which, thread);
  }

 private:
  const float* at_;
  unsigned inside_;
  float value_[route::share];
};

template <class A, class B>
struct gemm_thread {
  typename A::share_type a;
  typename B::share_type b;
  float sums[8][8];
};

/// Where elements of C are, for multiply_tile().
struct gemm_target {
  numeric::matrix<float> c;
  POTL_BODY bool has(std::int64_t row, std::int64_t column) const {
    return row < c.rows && column < c.columns;
  }
  POTL_BODY float& at(std::int64_t row, std::int64_t column) const {
    return c.data[row * c.row_stride + column * c.column_stride];
  }
};

/// The row (or column) within the tile of a thread's element `i`, 0 to 7: two groups of four, half
/// a tile apart, so that a warp reads neighbouring packs.
template <unsigned Lines>
POTL_BODY unsigned gemm_line(unsigned group, unsigned i) {
  return group * 4 + i % 4 + (i / 4) * (Lines / 2);
}

template <class Tile, class Block, class Thread>
POTL_BODY void multiply_slice(const gemm_memory<Tile, Block>& memory, unsigned which, unsigned k,
                              unsigned down, unsigned across, unsigned thread, Thread& mine) {
  const unsigned row = (which * Tile::depth + k) * memory.a.pitch + down * 4;
  const unsigned column = (which * Tile::depth + k) * memory.b.pitch + across * 4;
  const pack<float, 4> a[2] = {Block::template read<4>(memory.a.of, row, thread),
                               Block::template read<4>(memory.a.of, row + Tile::rows / 2, thread)};
  const pack<float, 4> b[2] = {
      Block::template read<4>(memory.b.of, column, thread),
      Block::template read<4>(memory.b.of, column + Tile::columns / 2, thread)};
  POTL_UNROLL
  for (unsigned i = 0; i < 8; ++i) {
    POTL_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      mine.sums[i][j] = fused(a[i / 4].at[i % 4], b[j / 4].at[j % 4], mine.sums[i][j]);
    }
  }
}

/// Adds the sums of a chunk to C, and begins the next ones.
template <class Tile, class Target, class Thread>
POTL_BODY void finish_chunk(const Target& c, std::int64_t row, std::int64_t column, unsigned down,
                            unsigned across, bool is_first, bool is_last, Thread& mine) {
  POTL_UNROLL
  for (unsigned i = 0; i < 8; ++i) {
    const std::int64_t r = row + gemm_line<Tile::rows>(down, i);
    POTL_UNROLL
    for (unsigned j = 0; j < 8; ++j) {
      const std::int64_t s = column + gemm_line<Tile::columns>(across, j);
      if (c.has(r, s)) {
        float& out = c.at(r, s);
        float sum = is_first ? mine.sums[i][j] : out + mine.sums[i][j];
        if (is_last && sum != sum) sum = canonical_nan();
        out = sum;
      }
      mine.sums[i][j] = 0.0F;
    }
  }
}

/// One tile of C in ord32, from element (row, column) on. a and b bring the lines of A and B from
/// memory, `depth` elements of each.
template <class Tile, class A, class B, class Target, class Block>
POTL_BODY void multiply_tile(Block& block, gemm_memory<Tile, Block>& memory, const A& a, const B& b,
                             const Target& c, std::int64_t row, std::int64_t column,
                             std::int64_t depth) {
  constexpr unsigned across_threads = Tile::columns / 8;
  using thread_state = gemm_thread<A, B>;
  typename Block::template own<thread_state> owned;
  const auto fetch = [&](thread_state& mine, std::int64_t left, unsigned thread) {
    mine.a.fetch(a, left, thread);
    mine.b.fetch(b, left, thread);
  };
  const auto put = [&](thread_state& mine, unsigned which, unsigned thread) {
    mine.a.put(a, memory.a, which, thread);
    mine.b.put(b, memory.b, which, thread);
  };
  block.each([&](unsigned thread) {
    thread_state& mine = owned.of(thread);
    POTL_UNROLL
    for (unsigned i = 0; i < 64; ++i) mine.sums[i / 8][i % 8] = 0.0F;
    mine.a.begin(a, thread);
    mine.b.begin(b, thread);
    fetch(mine, depth, thread);
    put(mine, 0, thread);
  });
  unsigned which = 0;
  for (std::int64_t k = 0; k == 0 || k < depth; k += Tile::depth, which ^= 1U) {
    const std::int64_t next = k + Tile::depth;
    block.each([&](unsigned thread) {
      thread_state& mine = owned.of(thread);
      const unsigned down = thread / across_threads, across = thread % across_threads;
      if (next < depth) fetch(mine, depth - next, thread);
      if (next <= depth) {
        POTL_UNROLL
        for (unsigned i = 0; i < Tile::depth; ++i) {
          multiply_slice<Tile>(memory, which, i, down, across, thread, mine);
        }
      } else {
        for (unsigned i = 0; i < static_cast<unsigned>(depth - k); ++i) {
          multiply_slice<Tile>(memory, which, i, down, across, thread, mine);
        }
      }
      if (next < depth) put(mine, which ^ 1U, thread);
      if (next >= depth || next % numeric::ord_chunk == 0) {
        finish_chunk<Tile>(c, row, column, down, across, k < numeric::ord_chunk, next >= depth,
                           mine);
      }
    });
  }
}

/// One tile of a product's C in ord32, where every block has one.
template <class Tile, class Block>
POTL_BODY void multiply_ordered(Block& block, gemm_memory<Tile, Block>& memory, products p) {
  const std::int64_t across_tiles = tiles_across<Tile>(p);
  const std::int64_t tiles = tiles_down<Tile>(p) * across_tiles;
  const auto index = static_cast<std::int64_t>(block.index());
  const std::int64_t product = index / tiles, tile = index % tiles;
  const std::int64_t row = tile / across_tiles * Tile::rows;
  const std::int64_t column = tile % across_tiles * Tile::columns;
  p.a.data += product * p.batch.a_stride;
  p.b.data += product * p.batch.b_stride;
  p.c.data += product * p.batch.c_stride;
  const gemm_route<Tile, Tile::rows> a(p.a, row);
  const gemm_route<Tile, Tile::columns> b(
      {p.b.data, p.b.columns, p.b.rows, p.b.column_stride, p.b.row_stride}, column);
  multiply_tile<Tile>(block, memory, a, b, gemm_target{p.c}, row, column, p.a.columns);
}

}  // namespace potl::cuda

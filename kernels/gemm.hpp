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

/// How the elements of C are shared out: a block has Rows x Columns of them, a thread 8 x 8, in
/// groups of four neighbours.
template <unsigned Rows, unsigned Columns, unsigned Depth>
struct gemm_tile {
  static constexpr unsigned rows = Rows, columns = Columns, height = 8, width = 8;
  static constexpr unsigned depth = Depth;  ///< k that a slice has
  static constexpr unsigned stages = 3;     ///< slices that are in shared memory, or on their way
  static constexpr unsigned threads = Rows * Columns / (height * width);
  /// Blocks on a multiprocessor: 512 threads have 128 registers each, 384 have 170.
  static constexpr unsigned resident = threads >= 256 ? 512 / threads : 384 / threads;
  static_assert(numeric::ord_chunk % Depth == 0);
  static_assert(Rows * Depth % threads == 0 && Columns * Depth % threads == 0);
  static_assert(threads % Depth == 0);

  /// A warp has 4 x 8 threads of the tile, so that it reads few lines of A and of B. Pairs of
  /// threads differ in their row: shared memory then serves a warp in half as many accesses.
  POTL_BODY static unsigned down(unsigned thread) {
    return thread / 32 / across_warps * 4 + thread % 2 + thread / 16 % 2 * 2;
  }
  POTL_BODY static unsigned across(unsigned thread) {
    return thread / 32 % across_warps * 8 + thread / 2 % 8;
  }

 private:
  static constexpr unsigned across_warps = Columns / width / 8;
  static_assert(across_warps != 0 && Rows / height % 4 == 0);
};

/// For products that fill a device, for those whose tiles are too few by then, and for others.
using large_tile = gemm_tile<128, 128, 8>;
using medium_tile = gemm_tile<64, 128, 8>;
using small_tile = gemm_tile<64, 64, 8>;

/// Tiles of one product.
template <class Tile>
POTL_BODY std::int64_t tiles_down(const products& p) {
  return (p.c.rows + Tile::rows - 1) / Tile::rows;
}
template <class Tile>
POTL_BODY std::int64_t tiles_across(const products& p) {
  return (p.c.columns + Tile::columns - 1) / Tile::columns;
}

/// Slices of `Lines` rows of A (or columns of B), each in the order of k. The spare four keep
/// writes of one warp in different banks.
template <class Tile, unsigned Lines, class Block>
struct gemm_slices {
  static constexpr unsigned pitch = Lines + 4;
  typename Block::template shared<float, Tile::stages * Tile::depth * pitch> of;
};

template <class Tile, class Block>
struct gemm_memory {
  gemm_slices<Tile, Tile::rows, Block> a;
  gemm_slices<Tile, Tile::columns, Block> b;
};

/// Which elements of a slice a thread brings from memory: neighbours go along the dimension that is
/// denser there. The same for all threads.
template <class Tile, unsigned Lines>
struct slice_shares {
  static constexpr unsigned count = Lines * Tile::depth / Tile::threads;
  static_assert(Tile::threads % Lines == 0);

  POTL_BODY explicit slice_shares(bool k_is_denser)
      : along_k(k_is_denser),
        line_stride(along_k ? Tile::threads / Tile::depth : 0),
        k_stride(along_k ? 0 : Tile::threads / Lines) {}

  /// Of the first element of a thread's share; the others are `line_stride` and `k_stride` apart.
  POTL_BODY unsigned line(unsigned thread) const {
    return along_k ? thread / Tile::depth : thread % Lines;
  }
  POTL_BODY unsigned k(unsigned thread) const {
    return along_k ? thread % Tile::depth : thread / Lines;
  }
  /// The elements whose k are below `left`; bit i is element i.
  POTL_BODY unsigned within(std::int64_t left, unsigned thread) const {
    constexpr unsigned stride = Tile::threads / Lines, all = (1U << count) - 1;
    const unsigned first = k(thread);
    const unsigned limit = left >= Tile::depth ? Tile::depth
                           : left > 0          ? static_cast<unsigned>(left)
                                               : 0;
    if (first >= limit) return 0;
    const unsigned several = (limit - first + stride - 1) / stride;
    return along_k || several >= count ? all : (1U << several) - 1;
  }
  /// Where it belongs in shared memory, and how far apart the others are there.
  template <class Slices>
  POTL_BODY unsigned place(const Slices& in, unsigned stage, unsigned thread) const {
    return (stage * Tile::depth + k(thread)) * in.pitch + line(thread);
  }
  template <class Slices>
  POTL_BODY unsigned place_step(const Slices& in) const {
    return k_stride * in.pitch + line_stride;
  }

  bool along_k;
  unsigned line_stride, k_stride;
};

/// How the threads bring slices of an operand that lies in memory with strides.
template <class Tile, unsigned Lines>
class gemm_route {
 public:
  using shares = slice_shares<Tile, Lines>;
  static constexpr bool can_be_whole = true;
  /// Where a thread's share of the next slice begins, which of its elements are on lines that are
  /// there, and which of them are there at all; bit i is element i.
  struct state {
    const float* at;
    unsigned lines, now;
  };

  /// `lines`: [line][k], of which line `first` is the tile's first one.
  POTL_BODY gemm_route(const numeric::matrix<const float>& lines, std::int64_t first)
      : at_(lines.data + first * lines.row_stride),
        line_step_(lines.row_stride),
        k_step_(lines.column_stride),
        lines_left_(lines.rows - first),
        of_(magnitude(k_step_) < magnitude(line_step_)),
        step_(of_.line_stride * line_step_ + of_.k_stride * k_step_) {}

  POTL_BODY void begin(state& mine, std::int64_t k, unsigned thread) const {
    mine = {at_ + of_.line(thread) * line_step_ + (k + of_.k(thread)) * k_step_, 0, 0};
    for (unsigned i = 0; i < shares::count; ++i) {
      if (of_.line(thread) + i * of_.line_stride < lines_left_) mine.lines |= 1U << i;
    }
  }

  /// Before the elements of a slice, of which `left` k are there.
  POTL_BODY void begin_slice(state& mine, std::int64_t left, unsigned thread) const {
    mine.now = mine.lines & of_.within(left, thread);
  }
  /// Begins to bring element i of the thread's share.
  template <class Block>
  POTL_BODY void fetch(const state& mine, unsigned i, gemm_slices<Tile, Lines, Block>& to,
                       unsigned stage, unsigned thread) const {
    Block::copy(to.of, of_.place(to, stage, thread) + i * of_.place_step(to), mine.at + i * step_,
                (mine.now >> i & 1U) != 0, thread);
  }
  POTL_BODY void end_slice(state& mine) const { mine.at += Tile::depth * k_step_; }

  /// Whether all lines are there, and neighbours lie together: along k, or four lines at a multiple
  /// of 16 bytes. Then a slice that is whole needs no question about its elements, and they are
  /// brought in fours, whose places are known apart from the first one's.
  POTL_BODY bool is_whole() const {
    if (lines_left_ < Lines) return false;
    if (of_.along_k) return k_step_ == 1;
    return line_step_ == 1 && k_step_ % 4 == 0 && reinterpret_cast<std::uintptr_t>(at_) % 16 == 0;
  }
  POTL_BODY void begin_whole(state& mine, std::int64_t k, unsigned thread) const {
    mine = {at_ + four_line(thread) * line_step_ + (k + four_k(thread)) * k_step_, 0, 0};
  }
  /// Element i of the thread's fours; along lines, the first of a four brings all of it.
  template <class Block>
  POTL_BODY void fetch_whole(const state& mine, unsigned i, gemm_slices<Tile, Lines, Block>& to,
                             unsigned stage, unsigned thread) const {
    const unsigned place = (stage * Tile::depth + four_k(thread)) * to.pitch + four_line(thread);
    const unsigned four = i / 4, within = i % 4;
    if (of_.along_k) {
      constexpr unsigned next = Tile::threads * 4 / Tile::depth;  // lines further
      Block::copy(to.of, place + within * to.pitch + four * next,
                  mine.at + within + (four == 0 ? 0 : four * next * line_step_), true, thread);
    } else if (within == 0) {
      constexpr unsigned next = Tile::threads * 4 / Lines;  // k further
      Block::copy_four(to.of, place + four * next * to.pitch,
                       mine.at + (four == 0 ? 0 : four * next * k_step_), thread);
    }
  }

 private:
  static_assert(shares::count % 4 == 0 && Tile::depth % 4 == 0);
  POTL_BODY static std::int64_t magnitude(std::int64_t step) { return step < 0 ? -step : step; }
  /// Where a thread's first four of a slice begins.
  POTL_BODY unsigned four_line(unsigned thread) const {
    return of_.along_k ? thread / (Tile::depth / 4) : thread % (Lines / 4) * 4;
  }
  POTL_BODY unsigned four_k(unsigned thread) const {
    return of_.along_k ? thread % (Tile::depth / 4) * 4 : thread / (Lines / 4);
  }

  const float* at_;
  std::int64_t line_step_, k_step_, lines_left_;
  shares of_;
  std::int64_t step_;
};

template <class Tile, class A, class B>
struct gemm_thread {
  typename A::state a;
  typename B::state b;
  float sums[Tile::height][Tile::width];
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
  /// Whether four neighbours from a multiple of four on are one access.
  POTL_BODY bool has_fours() const {
    return c.column_stride == 1 && c.row_stride % 4 == 0 &&
           reinterpret_cast<std::uintptr_t>(c.data) % 16 == 0;
  }
};

/// The row (or column) within the tile of a thread's element `i` of `Own`: groups of four, spread
/// over the tile, so that a warp reads neighbouring packs.
template <unsigned Lines, unsigned Own>
POTL_BODY unsigned gemm_line(unsigned group, unsigned i) {
  return group * 4 + i % 4 + i / 4 * (Lines * 4 / Own);
}

template <class Tile, class Block, class Thread>
POTL_BODY void multiply_slice(const gemm_memory<Tile, Block>& memory, unsigned stage, unsigned k,
                              unsigned thread, Thread& mine) {
  const unsigned row = (stage * Tile::depth + k) * memory.a.pitch;
  const unsigned column = (stage * Tile::depth + k) * memory.b.pitch;
  pack<float, 4> a[Tile::height / 4], b[Tile::width / 4];
  POTL_UNROLL
  for (unsigned i = 0; i < Tile::height; i += 4) {
    const unsigned line = gemm_line<Tile::rows, Tile::height>(Tile::down(thread), i);
    a[i / 4] = Block::template read<4>(memory.a.of, row + line, thread);
  }
  POTL_UNROLL
  for (unsigned j = 0; j < Tile::width; j += 4) {
    const unsigned line = gemm_line<Tile::columns, Tile::width>(Tile::across(thread), j);
    b[j / 4] = Block::template read<4>(memory.b.of, column + line, thread);
  }
  POTL_UNROLL
  for (unsigned i = 0; i < Tile::height; ++i) {
    POTL_UNROLL
    for (unsigned n = 0; n < Tile::width; ++n) {
      // There and back: neighbours have an operand in common, which is read from a register once.
      const unsigned j = i % 2 == 0 ? n : Tile::width - 1 - n;
      mine.sums[i][j] = fused(a[i / 4].at[i % 4], b[j / 4].at[j % 4], mine.sums[i][j]);
    }
  }
}

/// A chunk's sum, added to those before.
POTL_BODY float joined(float before, float sum, bool is_first, bool is_last) {
  if (!is_first) sum = before + sum;
  return is_last && sum != sum ? canonical_nan() : sum;
}

/// Adds the sums of a chunk to C, and begins the next ones. Whole: the tile ends nowhere before.
template <bool Whole, class Tile, class Target, class Thread>
POTL_BODY void finish_chunk(const Target& c, std::int64_t row, std::int64_t column, unsigned thread,
                            bool is_first, bool is_last, Thread& mine) {
  row = forgotten(row);
  column = forgotten(column);
  if constexpr (Whole && requires { c.has_fours(); }) {
    if (c.has_fours()) {
      POTL_UNROLL
      for (unsigned i = 0; i < Tile::height; ++i) {
        const std::int64_t r = row + gemm_line<Tile::rows, Tile::height>(Tile::down(thread), i);
        POTL_UNROLL
        for (unsigned j = 0; j < Tile::width; j += 4) {
          auto& out = *reinterpret_cast<pack<float, 4>*>(
              &c.at(r, column + gemm_line<Tile::columns, Tile::width>(Tile::across(thread), j)));
          pack<float, 4> sums{};
          if (!is_first) sums = out;
          POTL_UNROLL
          for (unsigned n = 0; n < 4; ++n) {
            sums.at[n] = joined(sums.at[n], mine.sums[i][j + n], is_first, is_last);
            mine.sums[i][j + n] = 0.0F;
          }
          out = sums;
        }
      }
      return;
    }
  }
  POTL_UNROLL
  for (unsigned i = 0; i < Tile::height; ++i) {
    const std::int64_t r = row + gemm_line<Tile::rows, Tile::height>(Tile::down(thread), i);
    POTL_UNROLL
    for (unsigned j = 0; j < Tile::width; ++j) {
      const std::int64_t s =
          column + gemm_line<Tile::columns, Tile::width>(Tile::across(thread), j);
      if (c.has(r, s)) {
        float& out = c.at(r, s);
        out = joined(is_first ? 0.0F : out, mine.sums[i][j], is_first, is_last);
      }
      mine.sums[i][j] = 0.0F;
    }
  }
}

/// The k of whole chunks: all of a product's, or one chunk, whose sum is then joined with others.
struct k_range {
  std::int64_t begin, end;
  bool is_whole;
};

/// Tiles of C that a block computes, slice after slice. Whole: all lines and all slices are whole.
template <class Tile, class A, class B, class Block, bool Whole>
struct gemm_steps {
  using thread_state = gemm_thread<Tile, A, B>;
  static constexpr unsigned ahead = Tile::stages - 1;
  static constexpr unsigned most =
      A::shares::count > B::shares::count ? A::shares::count : B::shares::count;

  const A& a;
  const B& b;
  gemm_memory<Tile, Block>& memory;

  POTL_BODY void begin_slice(thread_state& mine, std::int64_t left, unsigned thread) const {
    if constexpr (!Whole) {
      a.begin_slice(mine.a, left, thread);
      b.begin_slice(mine.b, left, thread);
    }
  }
  /// Elements number i of the shares of a slice.
  POTL_BODY void fetch(thread_state& mine, unsigned i, unsigned stage, unsigned thread) const {
    if constexpr (Whole) {
      if (i < A::shares::count) a.fetch_whole(mine.a, i, memory.a, stage, thread);
      if (i < B::shares::count) b.fetch_whole(mine.b, i, memory.b, stage, thread);
    } else {
      if (i < A::shares::count) a.fetch(mine.a, i, memory.a, stage, thread);
      if (i < B::shares::count) b.fetch(mine.b, i, memory.b, stage, thread);
    }
  }
  /// Behind the last whole slice, that one is brought again, and nobody looks at it.
  POTL_BODY void end_slice(thread_state& mine, std::int64_t left, unsigned thread) const {
    if (!Whole || left > Tile::depth) {
      a.end_slice(mine.a);
      b.end_slice(mine.b);
    }
    Block::end_group(thread);
  }

  POTL_BODY void begin(thread_state& mine, const k_range& range, unsigned thread) const {
    POTL_UNROLL
    for (unsigned i = 0; i < Tile::height * Tile::width; ++i) {
      mine.sums[i / Tile::width][i % Tile::width] = 0.0F;
    }
    if constexpr (Whole) {
      a.begin_whole(mine.a, range.begin, thread);
      b.begin_whole(mine.b, range.begin, thread);
    } else {
      a.begin(mine.a, range.begin, thread);
      b.begin(mine.b, range.begin, thread);
    }
    for (unsigned stage = 0; stage < ahead; ++stage) {
      const std::int64_t left = range.end - range.begin - stage * Tile::depth;
      begin_slice(mine, left, thread);
      POTL_UNROLL
      for (unsigned i = 0; i < most; ++i) fetch(mine, i, stage, thread);
      end_slice(mine, left, thread);
    }
    Block::template wait<ahead - 1>(thread);
  }

  /// The slice in `stage`, of which `left` k are there, while a later one is on its way.
  POTL_BODY void step(thread_state& mine, std::int64_t left, unsigned stage,
                      unsigned thread) const {
    // Into the memory of the slice before, which all threads have left.
    const unsigned to = stage == 0 ? ahead : stage - 1;
    begin_slice(mine, left - ahead * Tile::depth, thread);
    if (Whole || left >= Tile::depth) {
      // Between the products, so that neither waits for the other.
      POTL_UNROLL
      for (unsigned i = 0; i < Tile::depth; ++i) {
        multiply_slice<Tile>(memory, stage, i, thread, mine);
        POTL_UNROLL
        for (unsigned j = i; j < most; j += Tile::depth) fetch(mine, j, to, thread);
      }
    } else {
      POTL_ROLLED
      for (unsigned i = 0; i < static_cast<unsigned>(left); ++i) {
        multiply_slice<Tile>(memory, stage, i, thread, mine);
      }
    }
    end_slice(mine, left - ahead * Tile::depth, thread);
    Block::template wait<ahead - 1>(thread);
  }
};

template <bool Whole, class Tile, class A, class B, class Target, class Block>
POTL_BODY void multiply_slices(Block& block, gemm_memory<Tile, Block>& memory, const A& a,
                               const B& b, const Target& c, std::int64_t row, std::int64_t column,
                               const k_range& range) {
  const gemm_steps<Tile, A, B, Block, Whole> steps{a, b, memory};
  typename Block::template own<gemm_thread<Tile, A, B>> owned;
  block.each([&](unsigned thread) { steps.begin(owned.of(thread), range, thread); });
  unsigned stage = 0;
  for (std::int64_t chunk = range.begin; chunk == range.begin || chunk < range.end;
       chunk += numeric::ord_chunk) {
    const std::int64_t next = chunk + numeric::ord_chunk;
    const std::int64_t end = next < range.end ? next : range.end;
    for (std::int64_t k = chunk; k < end; k += Tile::depth) {
      block.each(
          [&](unsigned thread) { steps.step(owned.of(thread), range.end - k, stage, thread); });
      stage = stage == Tile::stages - 1 ? 0 : stage + 1;
    }
    // Apart from the loop over slices, whose registers its addresses would take.
    block.each([&](unsigned thread) {
      finish_chunk<Whole, Tile>(c, row, column, thread, chunk == range.begin,
                                range.is_whole && end >= range.end, owned.of(thread));
    });
  }
}

/// One tile of C in ord32, from element (row, column) on. a and b bring the lines of A and B from
/// memory.
template <class Tile, class A, class B, class Target, class Block>
POTL_BODY void multiply_tile(Block& block, gemm_memory<Tile, Block>& memory, const A& a, const B& b,
                             const Target& c, std::int64_t row, std::int64_t column,
                             const k_range& range) {
  if constexpr (A::can_be_whole && B::can_be_whole) {
    if (a.is_whole() && b.is_whole() && (range.end - range.begin) % Tile::depth == 0 &&
        range.end != range.begin) {
      return multiply_slices<true, Tile>(block, memory, a, b, c, row, column, range);
    }
  }
  multiply_slices<false, Tile>(block, memory, a, b, c, row, column, range);
}

/// B with its columns as lines.
POTL_BODY numeric::matrix<const float> columns_of(const numeric::matrix<const float>& b) {
  return {b.data, b.columns, b.rows, b.column_stride, b.row_stride};
}

/// Sums of chunks that blocks of their own compute: [chunk][product][row][column]. Where a product
/// has few tiles, so many blocks are at work; the sums are then joined in the order of chunks.
struct chunk_sums {
  float* data;
  std::int64_t first, products, rows, columns;  ///< the first chunk, and the sizes

  POTL_BODY std::int64_t size() const { return products * rows * columns; }
  POTL_BODY gemm_target of(std::int64_t chunk, std::int64_t product) const {
    float* const begin = data + ((chunk - first) * products + product) * rows * columns;
    return {{begin, rows, columns, columns, 1}};
  }
  POTL_BODY static k_range range(std::int64_t chunk, std::int64_t depth) {
    const std::int64_t begin = chunk * numeric::ord_chunk, end = begin + numeric::ord_chunk;
    return {begin, end < depth ? end : depth, false};
  }
};

/// An item: element i of [product][row][column]; `target.of(product)` is where it goes.
template <class Targets>
struct joined_chunks {
  chunk_sums sums;
  Targets targets;
  std::int64_t chunks;  ///< from sums.first on
  bool is_last;

  POTL_BODY void operator()(std::uint64_t i) const {
    const auto at = static_cast<std::int64_t>(i), size = sums.rows * sums.columns;
    float& out = targets.of(at / size).at(at % size / sums.columns, at % sums.columns);
    float sum = sums.first == 0 ? sums.data[at] : out + sums.data[at];
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
      sum = sum + sums.data[chunk * sums.size() + at];
    }
    out = is_last && sum != sum ? canonical_nan() : sum;
  }
};

/// Products in ord32: every block has a tile of one of them, or with Split a chunk of that.
template <class Tile, bool Split>
struct ordered_products {
  static constexpr unsigned threads = Tile::threads, resident = Tile::resident;
  template <class Block>
  using memory = gemm_memory<Tile, Block>;

  products all;
  chunk_sums sums;

  POTL_BODY gemm_target of(std::int64_t product) const {
    gemm_target out{all.c};
    out.c.data += product * all.batch.c_stride;
    return out;
  }

  template <class Block>
  POTL_BODY void operator()(Block& block, memory<Block>& shared) const {
    products p = all;
    const std::int64_t across_tiles = tiles_across<Tile>(p);
    const std::int64_t tiles = tiles_down<Tile>(p) * across_tiles;
    const auto index = static_cast<std::int64_t>(block.index());
    const std::int64_t product = index / tiles % p.batch.count, tile = index % tiles;
    const std::int64_t row = tile / across_tiles * Tile::rows;
    const std::int64_t column = tile % across_tiles * Tile::columns;
    p.a.data += product * p.batch.a_stride;
    p.b.data += product * p.batch.b_stride;
    const gemm_route<Tile, Tile::rows> a(p.a, row);
    const gemm_route<Tile, Tile::columns> b(columns_of(p.b), column);
    if constexpr (Split) {
      const std::int64_t chunk = sums.first + index / tiles / p.batch.count;
      multiply_tile<Tile>(block, shared, a, b, sums.of(chunk, product), row, column,
                          chunk_sums::range(chunk, p.a.columns));
    } else {
      multiply_tile<Tile>(block, shared, a, b, of(product), row, column, {0, p.a.columns, true});
    }
  }
};

}  // namespace potl::cuda

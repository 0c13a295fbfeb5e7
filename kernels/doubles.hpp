// SPDX-License-Identifier: Apache-2.0
// The bodies of products in cr32 and log64 (numeric/gemm.hpp). Private: needs block.hpp's macros.
//
// Right because a sum in double settles the rounding of nearly all elements: its error is bounded
// (numeric/detail/rounding.hpp) for every order in which no product passes more roundings than in
// the CPU's chains. Here, too, a chunk adds its products one after the other, in the order that
// tensor cores and lanes happen to take. Elements whose rounding that does not settle go into a
// list, and a warp looks at each: by an exact sum of its products, or in log64 by what is known of
// its operands. Norms have the CPU's bits, because each lane of theirs is one thread's chain.
#pragma once

#include <cstdint>
#include <utility>

#include <potl/numeric/detail/rounding.hpp>

#include "byte_planes.hpp"
#include "doubtful.hpp"

namespace potl::cuda {

/// A block has 64 x 64 elements, each of its four warps 32 x 32: 2 x 4 of mma.m16n8k4.
struct double_tile {
  static constexpr unsigned rows = 64, columns = 64, depth = 8, stages = 3, threads = 128;
  static constexpr unsigned resident = 2;

  POTL_BODY static unsigned row(unsigned thread) { return thread / 64 * 32; }
  POTL_BODY static unsigned column(unsigned thread) { return thread / 32 % 2 * 32; }
};

/// An item: one of the eight lanes of the squares of a line.
template <class Lines>
struct norm_lanes_of {
  static constexpr std::int64_t lane_count = numeric::norm_lanes;

  Lines from;
  std::int64_t lines;  ///< of all products
  double* lanes;       ///< [product][line][lane]

  POTL_BODY void operator()(std::uint64_t i) const {
    // Neighbours read neighbours.
    const auto index = static_cast<std::int64_t>(i);
    const bool along_k = from.is_along_k();
    const std::int64_t line = along_k ? index / lane_count : index % lines;
    const std::int64_t lane = along_k ? index % lane_count : index / lines;
    const std::int64_t product = line / from.count(), at = line % from.count();
    // So many are on their way at once.
    constexpr std::int64_t batch = 8;
    double sum = 0;
    std::int64_t k = lane;
    POTL_ROLLED
    for (; k + (batch - 1) * lane_count < from.depth(); k += batch * lane_count) {
      float values[batch];
      POTL_UNROLL
      for (unsigned j = 0; j < batch; ++j) values[j] = from.at(product, at, k + j * lane_count);
      POTL_UNROLL
      for (unsigned j = 0; j < batch; ++j) sum = sum + square(values[j]);
    }
    POTL_ROLLED
    for (; k < from.depth(); k += lane_count) sum = sum + square(from.at(product, at, k));
    lanes[line * lane_count + lane] = sum;
  }

 private:
  POTL_BODY static double square(float x) {
    return static_cast<double>(x) * static_cast<double>(x);
  }
};

/// An item: the norm of a line, from its lanes.
struct norm_of_lanes {
  const double* lanes;
  std::int64_t terms;
  double* norms;

  POTL_BODY void operator()(std::uint64_t i) const {
    double mine[numeric::norm_lanes];
    for (int lane = 0; lane < numeric::norm_lanes; ++lane) {
      mine[lane] = lanes[i * numeric::norm_lanes + static_cast<std::uint64_t>(lane)];
    }
    norms[i] = numeric::norm_of_squares(numeric::combine_norm_lanes(mine), terms);
  }
};

/// Products of doubles, rounded: every block has a tile of one product.
template <class A, class B, class Targets>
struct rounded_products {
  using tile = double_tile;
  static constexpr unsigned threads = tile::threads, resident = tile::resident;
  /// Of a row of sums in shared memory: few of a warp's are then in one bank.
  static constexpr unsigned pitch = tile::columns + 4;
  template <class Block>
  struct memory {
    gemm_memory<tile, Block> slices;
    typename Block::template shared<double, tile::rows * pitch> sums;
  };
  using a_route = decltype(std::declval<const A&>().template route<tile, tile::rows>(0, 0));
  using b_route = decltype(std::declval<const B&>().template route<tile, tile::columns>(0, 0));

  /// Groups of 16 rows, groups of 8 columns.
  struct thread_state {
    typename a_route::state a;
    typename b_route::state b;
    double row[2][2], column[4];
    double chain[2][4][4], sums[2][4][4];
  };

  rounded_elements<A, B, Targets> elements;

  POTL_BODY std::int64_t tiles_across() const {
    return (elements.b.count() + tile::columns - 1) / tile::columns;
  }
  POTL_BODY std::int64_t tiles() const {
    return (elements.a.count() + tile::rows - 1) / tile::rows * tiles_across();
  }

  template <class Block>
  POTL_BODY void operator()(Block& block, memory<Block>& shared) const {
    typename Block::template own<thread_state> owned;
    const auto index = static_cast<std::int64_t>(block.index());
    add_up(block, shared.slices, place_of(index), owned);
    block.each([&](unsigned thread) { show_sums(shared, owned.of(thread), thread); });
    // Found again, so that it takes no registers meanwhile.
    const place at = place_of(forgotten(index));
    block.each([&](unsigned thread) { put(shared, at, thread); });
  }

 private:
  /// Where a tile begins.
  struct place {
    std::int64_t product, row, column;
  };
  POTL_BODY place place_of(std::int64_t index) const {
    const std::int64_t at = index % tiles();
    return {index / tiles(), at / tiles_across() * tile::rows, at % tiles_across() * tile::columns};
  }

  /// Begins to bring the slice of which `left` k are there, if it is. Whole: all lines and all
  /// slices are whole; behind the last slice, that one is brought again, and nobody looks at it.
  template <bool Whole, class Slices>
  POTL_BODY static void bring(Slices& slices, const a_route& a, const b_route& b,
                              thread_state& mine, std::int64_t left, unsigned stage,
                              unsigned thread) {
    if constexpr (Whole) {
      POTL_UNROLL
      for (unsigned i = 0; i < a_route::shares::count; ++i)
        a.fetch_whole(mine.a, i, slices.a, stage, thread);
      POTL_UNROLL
      for (unsigned i = 0; i < b_route::shares::count; ++i)
        b.fetch_whole(mine.b, i, slices.b, stage, thread);
    } else {
      a.begin_slice(mine.a, left, thread);
      b.begin_slice(mine.b, left, thread);
      POTL_UNROLL
      for (unsigned i = 0; i < a_route::shares::count; ++i)
        a.fetch(mine.a, i, slices.a, stage, thread);
      POTL_UNROLL
      for (unsigned i = 0; i < b_route::shares::count; ++i)
        b.fetch(mine.b, i, slices.b, stage, thread);
    }
    if (!Whole || left > tile::depth) {
      a.end_slice(mine.a);
      b.end_slice(mine.b);
    }
  }

  /// Four k of the slice in `stage`: those of `which` parity, so that the lanes of a warp read
  /// different banks. The others have their turn.
  template <class Block>
  POTL_BODY static void multiply(Block& block, const gemm_memory<tile, Block>& slices,
                                 unsigned stage, unsigned which,
                                 typename Block::template own<thread_state>& owned) {
    block.open([&](unsigned thread) {
      thread_state& mine = owned.of(thread);
      const unsigned k = stage * tile::depth + thread % 4 * 2 + which;
      const unsigned line = thread % 32 / 4;
      const auto value = [&](const auto& of, unsigned at) {
        return static_cast<double>(
            Block::template read<1>(of.of, k * of.pitch + at + line, thread).at[0]);
      };
      POTL_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        mine.row[i / 2][i % 2] = value(slices.a, tile::row(thread) + i * 8);
        mine.column[i] = value(slices.b, tile::column(thread) + i * 8);
      }
    });
    POTL_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      POTL_UNROLL
      for (unsigned j = 0; j < 4; ++j) {
        block.multiply_doubles(owned, [=](thread_state& mine) -> double_product {
          return {mine.row[i], mine.column[j], mine.chain[i][j]};
        });
      }
    }
  }

  POTL_BODY static void begin(thread_state& mine) {
    POTL_UNROLL
    for (unsigned i = 0; i < 32; ++i) {
      mine.chain[i / 16][i / 4 % 4][i % 4] = mine.sums[i / 16][i / 4 % 4][i % 4] = 0;
    }
  }
  POTL_BODY static void end_chunk(thread_state& mine) {
    POTL_UNROLL
    for (unsigned i = 0; i < 32; ++i) {
      double& chain = mine.chain[i / 16][i / 4 % 4][i % 4];
      double& sum = mine.sums[i / 16][i / 4 % 4][i % 4];
      sum = sum + chain;
      chain = 0;
    }
  }

  template <bool Whole, class Block>
  POTL_BODY void add_slices(Block& block, gemm_memory<tile, Block>& slices, const a_route& a,
                            const b_route& b,
                            typename Block::template own<thread_state>& owned) const {
    const std::int64_t depth = elements.a.depth(), chunk = numeric::log64_chunk(depth);
    block.each([&](unsigned thread) {
      thread_state& mine = owned.of(thread);
      begin(mine);
      if constexpr (Whole) {
        a.begin_whole(mine.a, 0, thread);
        b.begin_whole(mine.b, 0, thread);
      } else {
        a.begin(mine.a, 0, thread);
        b.begin(mine.b, 0, thread);
      }
      for (unsigned stage = 0; stage < 2; ++stage) {
        bring<Whole>(slices, a, b, mine, depth - stage * tile::depth, stage, thread);
        Block::end_group(thread);
      }
      Block::template wait<1>(thread);
    });
    unsigned stage = 0;
    POTL_ROLLED
    for (std::int64_t left = depth; left > 0; left -= chunk) {
      const std::int64_t end = left > chunk ? left - chunk : 0;
      POTL_ROLLED
      for (std::int64_t from = left; from > end; from -= tile::depth) {
        block.open([&](unsigned thread) {
          // Into the memory of the slice before, which all threads have left.
          bring<Whole>(slices, a, b, owned.of(thread), from - 2 * tile::depth,
                       stage == 0 ? 2 : stage - 1, thread);
          Block::end_group(thread);
        });
        multiply(block, slices, stage, 0, owned);
        multiply(block, slices, stage, 1, owned);
        block.each([&](unsigned thread) { Block::template wait<1>(thread); });
        stage = stage == tile::stages - 1 ? 0 : stage + 1;
      }
      block.open([&](unsigned thread) { end_chunk(owned.of(thread)); });
    }
  }

  template <class Block>
  POTL_BODY void add_up(Block& block, gemm_memory<tile, Block>& slices, const place& at,
                        typename Block::template own<thread_state>& owned) const {
    const a_route a = elements.a.template route<tile, tile::rows>(at.product, at.row);
    const b_route b = elements.b.template route<tile, tile::columns>(at.product, at.column);
    if constexpr (a_route::can_be_whole && b_route::can_be_whole) {
      const std::int64_t depth = elements.a.depth();
      if (a.is_whole() && b.is_whole() && depth % tile::depth == 0 && depth != 0) {
        return add_slices<true>(block, slices, a, b, owned);
      }
    }
    add_slices<false>(block, slices, a, b, owned);
  }

  template <class Block>
  POTL_BODY static void show_sums(memory<Block>& shared, const thread_state& mine,
                                  unsigned thread) {
    POTL_UNROLL
    for (unsigned i = 0; i < 32; ++i) {
      const unsigned row = tile::row(thread) + i / 16 * 16 + i % 4 / 2 * 8 + thread % 32 / 4;
      const unsigned column = tile::column(thread) + i / 4 % 4 * 8 + thread % 4 * 2 + i % 2;
      Block::write(shared.sums, row * pitch + column, mine.sums[i / 16][i / 4 % 4][i % 4], thread);
    }
  }

  /// Neighbours put neighbours. From shared memory, because an index into registers would have to
  /// be known beforehand, and so much code for each element fills the instruction cache.
  template <class Block>
  POTL_BODY void put(const memory<Block>& shared, const place& at, unsigned thread) const {
    POTL_ROLLED
    for (unsigned i = thread; i < tile::rows * tile::columns; i += threads) {
      const unsigned r = i / tile::columns, s = i % tile::columns;
      if (at.row + r < elements.a.count() && at.column + s < elements.b.count()) {
        elements.put({at.product, at.row + r, at.column + s,
                      Block::template read<1>(shared.sums, r * pitch + s, thread).at[0]});
      }
    }
  }
};

}  // namespace potl::cuda

// SPDX-License-Identifier: Apache-2.0
// The bodies of products in xint24 and xint16 (numeric/gemm.hpp). Private: needs block.hpp's
// macros.
//
// Exact because sums of integers have no order. Bytes (byte_planes.hpp) are multiplied by the
// tensor cores, whose int32 sums of equal weight cannot overflow within a chunk; chunks are added
// modulo 2^64 in two parts; and the whole is rounded once.
#pragma once

#include <cstdint>

#include "byte_planes.hpp"
#include "numeric/gemm/scaled_back.hpp"

namespace potl::cuda {

/// A sum of integers in two parts, low + 2^32 high, to which chunks are added in any order.
struct split_sum {
  std::uint64_t low, high;
};

/// Sums of all products: [product][row][column].
struct split_sums {
  split_sum* data;
  std::int64_t rows, columns;
};

/// The sum that is stored, rounded once.
template <unsigned Digits, class Targets>
struct rounded_integers {
  Targets targets;
  std::int64_t first;  ///< product
  byte_planes a, b;
  split_sums sums;

  POTL_BODY void operator()(std::uint64_t i) const {
    const auto at = static_cast<std::int64_t>(i), size = sums.rows * sums.columns;
    const std::int64_t product = at / size, row = at % size / sums.columns;
    const std::int64_t column = at % sums.columns;
    const split_sum sum = sums.data[at];
    targets.of(first + product).at(row, column) = numeric::detail::scaled_back(
        static_cast<std::int64_t>(sum.high), sum.low,
        integer_form<Digits>::factor(a.largest[a.line(product, row)]) *
            integer_form<Digits>::factor(b.largest[b.line(product, column)]));
  }
};

/// Products of bytes, of which every block has a tile, or a chunk of it.
template <unsigned Digits, class Targets>
struct integer_work {
  using form = integer_form<Digits>;

  Targets targets;
  std::int64_t first;  ///< product
  byte_planes a, b;
  std::int64_t rows, columns;
  std::int64_t chunk;   ///< k of a chunk
  std::int64_t chunks;  ///< of a product
  split_sums sums;      ///< no data: each product is one chunk

  POTL_BODY double row_factor(std::int64_t product, std::int64_t row) const {
    return form::factor(a.largest[a.line(product, row)]);
  }
  POTL_BODY double column_factor(std::int64_t product, std::int64_t column) const {
    return form::factor(b.largest[b.line(product, column)]);
  }

  /// The sum of an element, or of a chunk of it, from those of its levels. `target`: of the
  /// product.
  template <class Target, class Levels>
  POTL_BODY void put(const Target& target, std::int64_t product, std::int64_t row,
                     std::int64_t column, double factor, const Levels& levels) const {
    std::int64_t sum = 0;
    POTL_UNROLL
    for (unsigned level = form::levels; level-- > 0;) sum = sum * 256 + levels(level);
    if (sums.data != nullptr) {
      split_sum& to = sums.data[(product * sums.rows + row) * sums.columns + column];
      add_together(to.low, static_cast<std::uint64_t>(sum) & 0xffffffffU);
      add_together(to.high, static_cast<std::uint64_t>(sum >> 32));
    } else {
      target.at(row, column) = numeric::detail::scaled_back(sum, factor);
    }
  }
};

/// By warps: a block has 64 x 128 elements.
template <unsigned Digits, class Targets>
struct integer_products {
  using form = integer_form<Digits>;
  static constexpr unsigned threads = form::threads;
  static constexpr unsigned rows = 64, columns = 128;
  static constexpr std::int64_t depth = form::depth;  ///< the k of a chunk are a multiple
  static constexpr operand_side right = operand_side::right;
  static constexpr unsigned slice_words = byte_planes::slice_words<Digits>;
  static constexpr unsigned stages = 3;
  static constexpr unsigned stage_words = 3 * slice_words;  ///< 64 rows and 128 columns

  template <class Block>
  struct memory {
    typename Block::template shared<std::uint32_t, stages * stage_words> words;
  };

  /// A warp has 32 x 32 elements: 2 x 4 of the instruction's 16 x 8.
  struct thread_state {
    std::uint32_t a[2][Digits][4], b[2][Digits][2];
    std::int32_t sums[form::levels][2][4][4];
  };

  integer_work<Digits, Targets> work;

  POTL_BODY std::int64_t tiles_across() const { return (work.columns + columns - 1) / columns; }
  POTL_BODY std::int64_t tiles() const { return (work.rows + rows - 1) / rows * tiles_across(); }

  /// Where a warp's part of the tile begins.
  POTL_BODY static unsigned row_of(unsigned thread) { return thread / 128 * 32; }
  POTL_BODY static unsigned column_of(unsigned thread) { return thread / 32 % 4 * 32; }

  /// Begins to bring a slice of a tile: 64 rows, 64 columns, and 64 more after all slices of those.
  template <class Block>
  POTL_BODY void bring(memory<Block>& shared, unsigned stage, const std::uint32_t* rows_at,
                       const std::uint32_t* columns_at, unsigned thread) const {
    POTL_UNROLL
    for (unsigned part = 0; part < 3; ++part) {
      const std::uint32_t* const from =
          part == 0 ? rows_at : columns_at + (part - 1) * work.b.slices * slice_words;
      POTL_UNROLL
      for (unsigned i = thread * 4; i < slice_words; i += threads * 4) {
        Block::copy_four(shared.words, stage * stage_words + part * slice_words + i, from + i,
                         thread);
      }
    }
  }

  /// A lane's words of a digit of 16 rows, or of 16 columns from 64 on.
  template <class Block>
  POTL_BODY static auto words_of(const memory<Block>& shared, unsigned stage, unsigned line,
                                 unsigned digit, unsigned thread) {
    const unsigned at = (line / 16 * Digits + digit) * byte_planes::fragment + thread % 32 * 4;
    return Block::template read<4>(shared.words, stage * stage_words + at, thread);
  }

  template <unsigned I, unsigned J, unsigned Da, unsigned Db, class Block>
  POTL_BODY static void multiply(Block& block, typename Block::template own<thread_state>& owned) {
    block.template multiply_bytes<Da == Digits - 1, Db == Digits - 1>(
        owned, [](thread_state& mine) -> byte_product {
          return {mine.a[I][Da], mine.b[J % 2][Db], mine.sums[Da + Db][I][J]};
        });
  }
  /// All digits of both.
  template <unsigned I, unsigned J, class Block>
  POTL_BODY static void multiply_digits(Block& block,
                                        typename Block::template own<thread_state>& owned) {
    multiply<I, J, 0, 0>(block, owned);
    multiply<I, J, 0, 1>(block, owned);
    multiply<I, J, 1, 0>(block, owned);
    multiply<I, J, 1, 1>(block, owned);
    if constexpr (Digits == 3) {
      multiply<I, J, 0, 2>(block, owned);
      multiply<I, J, 2, 0>(block, owned);
      multiply<I, J, 1, 2>(block, owned);
      multiply<I, J, 2, 1>(block, owned);
      multiply<I, J, 2, 2>(block, owned);
    }
  }

  /// The slice in `stage` times 16 columns of each warp's, from number J * 8 on.
  template <unsigned J, class Block>
  POTL_BODY static void multiply_columns(Block& block, memory<Block>& shared, unsigned stage,
                                         typename Block::template own<thread_state>& owned) {
    block.open([&](unsigned thread) {
      thread_state& mine = owned.of(thread);
      POTL_UNROLL
      for (unsigned d = 0; d < Digits; ++d) {
        const auto words = words_of(shared, stage, rows + column_of(thread) + J * 8, d, thread);
        POTL_UNROLL
        for (unsigned i = 0; i < 4; ++i) mine.b[i / 2][d][i % 2] = words.at[i];
      }
    });
    multiply_digits<0, J>(block, owned);
    multiply_digits<1, J>(block, owned);
    multiply_digits<0, J + 1>(block, owned);
    multiply_digits<1, J + 1>(block, owned);
  }

  template <class Block>
  POTL_BODY static void load_rows(thread_state& mine, const memory<Block>& shared, unsigned stage,
                                  unsigned thread) {
    POTL_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      POTL_UNROLL
      for (unsigned d = 0; d < Digits; ++d) {
        const auto words = words_of(shared, stage, row_of(thread) + i * 16, d, thread);
        POTL_UNROLL
        for (unsigned part = 0; part < 4; ++part) mine.a[i][d][part] = words.at[part];
      }
    }
  }

  /// The thread's elements of a tile, or of a chunk of it.
  POTL_BODY void put(const thread_state& mine, std::int64_t product, std::int64_t row,
                     std::int64_t column, unsigned thread) const {
    const auto target = work.targets.of(work.first + product);
    POTL_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      POTL_UNROLL
      for (unsigned j = 0; j < 4; ++j) {
        POTL_UNROLL
        for (unsigned e = 0; e < 4; ++e) {
          const std::int64_t r = row + row_of(thread) + i * 16 + thread % 32 / 4 + e / 2 * 8;
          const std::int64_t s = column + column_of(thread) + j * 8 + thread % 4 * 2 + e % 2;
          if (r >= work.rows || s >= work.columns) continue;
          work.put(target, product, r, s,
                   work.row_factor(product, r) * work.column_factor(product, s),
                   [&](unsigned level) { return mine.sums[level][i][j][e]; });
        }
      }
    }
  }

  template <class Block>
  POTL_BODY void operator()(Block& block, memory<Block>& shared) const {
    const auto index = static_cast<std::int64_t>(block.index());
    const std::int64_t part = index % work.chunks, tile = index / work.chunks % tiles();
    const std::int64_t product = index / work.chunks / tiles();
    const std::int64_t row = tile / tiles_across() * rows;
    const std::int64_t column = tile % tiles_across() * columns;
    const std::int64_t first_slice = part * (work.chunk / form::depth);
    // Those of the slice that is brought next.
    const byte_planes &a = work.a, &b = work.b;
    const std::uint32_t* rows_at = a.template at<Digits>(a.line(product, row), first_slice);
    const std::uint32_t* columns_at = b.template at<Digits>(b.line(product, column), first_slice);
    const std::int64_t left = a.slices - first_slice, most = work.chunk / form::depth;
    const std::int64_t slices = left < most ? left : most;
    typename Block::template own<thread_state> owned;
    block.each([&](unsigned thread) {
      thread_state& mine = owned.of(thread);
      POTL_UNROLL
      for (unsigned i = 0; i < form::levels * 32; ++i) {
        mine.sums[i / 32][i / 16 % 2][i / 4 % 4][i % 4] = 0;
      }
    });
    const auto bring_next = [&](std::int64_t slice, unsigned stage) {
      block.open([&](unsigned thread) {
        if (slice < slices) bring(shared, stage, rows_at, columns_at, thread);
        Block::end_group(thread);
      });
      rows_at += slice_words;
      columns_at += slice_words;
    };
    const auto wait = [&] { block.each([](unsigned thread) { Block::template wait<1>(thread); }); };
    bring_next(0, 0);
    bring_next(1, 1);
    wait();
    unsigned stage = 0;
    POTL_ROLLED
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      // Into the memory of the slice before, which all threads have left.
      bring_next(slice + 2, stage == 0 ? 2 : stage - 1);
      block.open([&](unsigned thread) { load_rows(owned.of(thread), shared, stage, thread); });
      multiply_columns<0>(block, shared, stage, owned);
      multiply_columns<2>(block, shared, stage, owned);
      wait();
      stage = stage == stages - 1 ? 0 : stage + 1;
    }
    block.each([&](unsigned thread) { put(owned.of(thread), product, row, column, thread); });
  }
};

/// By warpgroups, each of which goes on by itself: a block has 128 rows and 64 columns, or 128 of
/// two digits. Where the device multiplies_rows().
template <unsigned Digits, class Targets>
struct wide_integer_products {
  using form = integer_form<Digits>;
  static constexpr unsigned threads = 256, bringers = 128;
  static constexpr unsigned groups = Digits == 3 ? 1 : 2;  ///< of 64 columns
  static constexpr unsigned rows = 128, columns = 64 * groups;
  static constexpr unsigned stage_slices = 2, stages = Digits == 3 ? 5 : 6;
  static constexpr std::int64_t depth = form::depth * stage_slices;
  static constexpr operand_side right = operand_side::shared_right;
  static constexpr unsigned slice_words = byte_planes::slice_words<Digits>;
  static constexpr unsigned group_words = stage_slices * slice_words;  ///< of 64 lines
  static constexpr unsigned stage_words = (2 + groups) * group_words;

  template <class Block>
  struct memory {
    typename Block::template shared<std::uint32_t, stages * stage_words> words;
    typename Block::template stage_marks<stages> marks;
  };

  /// A warp has 16 rows and all columns.
  struct thread_state {
    std::uint32_t a[stage_slices][Digits][4];
    std::int32_t sums[groups][form::levels][32];
  };

  integer_work<Digits, Targets> work;

  POTL_BODY std::int64_t tiles_across() const { return (work.columns + columns - 1) / columns; }
  POTL_BODY std::int64_t tiles_down() const { return (work.rows + rows - 1) / rows; }
  POTL_BODY std::int64_t tiles() const { return tiles_down() * tiles_across(); }

  /// Where a part of a tile begins.
  struct place {
    std::int64_t product, row, column, first_slice, count;
  };
  /// Tiles that are computed at the same time lie in eight rows of tiles, so that they have many
  /// operands in common, which the device's cache then has.
  POTL_BODY place place_of(std::int64_t index) const {
    const std::int64_t tile = index / work.chunks % tiles(), together = 8 * tiles_across();
    const std::int64_t first_row = tile / together * 8, left = tiles_down() - first_row;
    const std::int64_t down = left < 8 ? left : 8;
    const std::int64_t first_slice = index % work.chunks * (work.chunk / form::depth);
    const std::int64_t slices = work.a.slices - first_slice, most = work.chunk / form::depth;
    return {index / work.chunks / tiles(), (first_row + tile % together % down) * rows,
            tile % together / down * columns, first_slice,
            (slices < most ? slices : most) / stage_slices};
  }

  template <class Block>
  POTL_BODY void operator()(Block& block, memory<Block>& shared) const {
    const place at = place_of(static_cast<std::int64_t>(block.index()));
    block.template pipelined<stage_words * 4>(
        shared.marks, at.count,
        [&](std::int64_t i, unsigned stage) { bring<Block>(shared, at, i, stage); },
        [&](auto& stages_there) {
          typename Block::template own<thread_state> owned;
          block.open([&](unsigned thread) {
            thread_state& mine = owned.of(thread);
            POTL_UNROLL
            for (unsigned i = 0; i < groups * form::levels * 32; ++i) {
              mine.sums[i / 32 / form::levels][i / 32 % form::levels][i % 32] = 0;
            }
          });
          POTL_ROLLED
          for (std::int64_t i = 0; i < at.count; ++i) {
            const unsigned stage = stages_there.next();
            block.open([&](unsigned thread) {
              load_rows<Block>(owned.of(thread), shared, stage, thread);
            });
            block.begin_rows();
            multiply_stage(block, shared, stage, owned);
            block.finish_rows();
            stages_there.leave(stage);
          }
          block.open([&](unsigned thread) { put(owned.of(thread), at, thread); });
        });
  }

 private:
  template <class Block>
  POTL_BODY void bring(memory<Block>& shared, const place& at, std::int64_t i,
                       unsigned stage) const {
    POTL_UNROLL
    for (unsigned group = 0; group < 2 + groups; ++group) {
      const byte_planes& of = group < 2 ? work.a : work.b;
      const std::int64_t line = group < 2 ? at.row + group * 64 : at.column + (group - 2) * 64;
      Block::bring_words(
          shared.marks, stage, shared.words, stage * stage_words + group * group_words,
          of.template at<Digits>(of.line(at.product, line), at.first_slice + i * stage_slices),
          group_words);
    }
  }

  template <class Block>
  POTL_BODY static void load_rows(thread_state& mine, const memory<Block>& shared, unsigned stage,
                                  unsigned thread) {
    const unsigned first = stage * stage_words + thread / 128 * group_words +
                           thread % 128 / 32 * (Digits * byte_planes::fragment) + thread % 32 * 4;
    POTL_UNROLL
    for (unsigned slice = 0; slice < stage_slices; ++slice) {
      POTL_UNROLL
      for (unsigned d = 0; d < Digits; ++d) {
        const auto words = Block::template read<4>(
            shared.words, first + slice * slice_words + d * byte_planes::fragment, thread);
        POTL_UNROLL
        for (unsigned i = 0; i < 4; ++i) mine.a[slice][d][i] = words.at[i];
      }
    }
  }

  template <unsigned Slice, unsigned Group, unsigned Da, unsigned Db, class Block>
  POTL_BODY static void multiply(Block& block, const memory<Block>& shared, unsigned stage,
                                 typename Block::template own<thread_state>& owned) {
    block.template multiply_rows<Da == Digits - 1, Db == Digits - 1>(
        owned,
        [](thread_state& mine) -> row_product {
          return {mine.a[Slice][Da], mine.sums[Group][Da + Db]};
        },
        shared.words,
        stage* stage_words + (2 + Group) * group_words + Slice * slice_words +
            Db * 4 * byte_planes::fragment);
  }
  /// A digit of the rows with all of the columns.
  template <unsigned Slice, unsigned Group, unsigned Da, class Block>
  POTL_BODY static void multiply_digit(Block& block, const memory<Block>& shared, unsigned stage,
                                       typename Block::template own<thread_state>& owned) {
    multiply<Slice, Group, Da, 0>(block, shared, stage, owned);
    multiply<Slice, Group, Da, 1>(block, shared, stage, owned);
    if constexpr (Digits == 3) multiply<Slice, Group, Da, 2>(block, shared, stage, owned);
  }
  template <unsigned Slice, unsigned Group, class Block>
  POTL_BODY static void multiply_group(Block& block, const memory<Block>& shared, unsigned stage,
                                       typename Block::template own<thread_state>& owned) {
    multiply_digit<Slice, Group, 0>(block, shared, stage, owned);
    multiply_digit<Slice, Group, 1>(block, shared, stage, owned);
    if constexpr (Digits == 3) multiply_digit<Slice, Group, 2>(block, shared, stage, owned);
  }
  template <class Block>
  POTL_BODY static void multiply_stage(Block& block, const memory<Block>& shared, unsigned stage,
                                       typename Block::template own<thread_state>& owned) {
    multiply_group<0, 0>(block, shared, stage, owned);
    if constexpr (groups == 2) multiply_group<0, 1>(block, shared, stage, owned);
    multiply_group<1, 0>(block, shared, stage, owned);
    if constexpr (groups == 2) multiply_group<1, 1>(block, shared, stage, owned);
  }

  POTL_BODY void put(thread_state& mine, const place& at, unsigned thread) const {
    const auto target = work.targets.of(work.first + at.product);
    const std::int64_t row = at.row + thread / 32 * 16 + thread % 32 / 4;
    const std::int64_t column = at.column + thread % 4 * 2;
    double row_factors[2] = {};
    POTL_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const std::int64_t r = row + half * 8;
      if (r < work.rows) row_factors[half] = work.row_factor(at.product, r);
    }
    POTL_UNROLL
    for (unsigned i = 0; i < groups * 16; ++i) {
      auto& of = mine.sums[i / 16];
      const unsigned element = i % 16 / 2 * 4 + i % 2;
      const std::int64_t s = column + i / 2 * 8 + i % 2;
      POTL_UNROLL
      for (unsigned level = 0; level < form::levels; ++level) {
        in_turn(of[level][element]);
        in_turn(of[level][element + 2]);
      }
      if (s >= work.columns) continue;
      const double column_factor = work.column_factor(at.product, s);
      POTL_UNROLL
      for (unsigned half = 0; half < 2; ++half) {
        if (row + half * 8 >= work.rows) continue;
        work.put(target, at.product, row + half * 8, s, row_factors[half] * column_factor,
                 [&](unsigned level) { return of[level][element + half * 2]; });
      }
    }
  }
};

}  // namespace potl::cuda

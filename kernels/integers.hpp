// SPDX-License-Identifier: Apache-2.0
// The bodies of products in xint24 and xint16 (numeric/gemm.hpp). Private: needs block.hpp's
// macros.
//
// Exact because sums of integers have no order. A line is scaled to 24 (or 16) bits by its largest
// exponent, which is a maximum, and each integer is cut into its bytes: the highest has the sign.
// Bytes are multiplied by the tensor cores, whose int32 sums of equal weight cannot overflow within
// a chunk; chunks are added modulo 2^64 in two parts; and the whole is rounded once. Lines beyond
// the edge and k beyond the depth are zeros, which add nothing.
#pragma once

#include <bit>
#include <cstdint>

#include <potl/numeric/gemm.hpp>

#include "block.hpp"
#include "convolution.hpp"
#include "numeric/gemm/scaled_back.hpp"

namespace potl::cuda {

POTL_BODY std::uint32_t magnitude_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x) & 0x7fffffffU;
#else
  return std::bit_cast<std::uint32_t>(x) & 0x7fffffffU;
#endif
}

/// Lines of an operand in memory, for each of several products.
struct stored_lines {
  numeric::matrix<const float> lines;
  std::int64_t step;  ///< from one product to the next

  POTL_BODY std::int64_t count() const { return lines.rows; }
  POTL_BODY std::int64_t depth() const { return lines.columns; }
  POTL_BODY bool is_along_k() const {
    const auto size = [](std::int64_t x) { return x < 0 ? -x : x; };
    return size(lines.column_stride) <= size(lines.row_stride);
  }
  POTL_BODY float at(std::int64_t product, std::int64_t line, std::int64_t k) const {
    return lines.data[product * step + line * lines.row_stride + k * lines.column_stride];
  }
  template <class Tile, unsigned Lines>
  POTL_BODY gemm_route<Tile, Lines> route(std::int64_t product, std::int64_t first) const {
    numeric::matrix<const float> of = lines;
    of.data += product * step;
    return gemm_route<Tile, Lines>(of, first);
  }
};

/// Those of an operand that is gathered.
struct gathered_lines {
  gathered from;
  std::int64_t k_count, step;

  POTL_BODY std::int64_t count() const { return from.line_count; }
  POTL_BODY std::int64_t depth() const { return k_count; }
  POTL_BODY bool is_along_k() const { return from.along_k; }
  POTL_BODY float at(std::int64_t product, std::int64_t line, std::int64_t k) const {
    const gather_point a = from.lines[line], b = from.depth[k];
    return from.is_inside(a, b) ? from.data[product * step + a.place + b.place] : 0.0F;
  }
  template <class Tile, unsigned Lines>
  POTL_BODY gather_route<Tile, Lines> route(std::int64_t product, std::int64_t first) const {
    gathered of = from;
    of.data += product * step;
    return gather_route<Tile, Lines>(of, first);
  }
};

enum class operand_side : std::uint8_t { left, right };

/// An operand as bytes, four k in a word, in the order in which warps multiply them: [product][64
/// lines][32 k][16 lines][digit][lane][word]. Lines and k are filled up with zeros. Where all
/// products share it there is one.
struct byte_planes {
  /// Words of a digit of 16 lines and 32 k: four for each lane.
  static constexpr unsigned fragment = 128;

  std::uint32_t* words;
  std::uint32_t* largest;  ///< of each line: the bits of its largest magnitude
  std::int64_t lines, slices;
  bool is_shared;
  operand_side side;

  /// Words of 64 lines and 32 k.
  template <unsigned Digits>
  static constexpr unsigned slice_words = 4 * Digits* fragment;

  /// Where 16 lines of a slice begin.
  template <unsigned Digits>
  POTL_BODY std::uint32_t* at(std::int64_t line, std::int64_t slice) const {
    return words + (line / 64 * slices + slice) * slice_words<Digits> +
           line % 64 / 16 * (Digits * fragment);
  }
  /// Whose word a lane has: a line of the 16, and four k of the 32. In the layout of
  /// mma.m16n8k32, a left operand has lines 8 apart first, a right one is two operands of 8 lines.
  struct place {
    unsigned line, four;
  };
  POTL_BODY place place_of(unsigned lane, unsigned word) const {
    const bool is_left = side == operand_side::left;
    const unsigned low = word % 2, high = word / 2;
    return {(is_left ? low : high) * 8 + lane / 4, (is_left ? high : low) * 4 + lane % 4};
  }

  POTL_BODY std::int64_t line(std::int64_t product, std::int64_t line) const {
    return (is_shared ? 0 : product) * lines + line;
  }
};

/// What these bodies' blocks share out. `Digits` bytes make an integer.
template <unsigned Digits>
struct integer_form {
  static constexpr unsigned threads = 256;
  static constexpr int bits = 8 * Digits, limit = (1 << (bits - 1)) - 1;
  static constexpr unsigned levels = 2 * Digits - 1;
  static constexpr unsigned rows = 64, columns = 128, lines = rows + columns;
  static constexpr unsigned depth = 32;  ///< k of a slice, bytes of one instruction
  /// k whose sums fit into int32: those of a level add up to 255 * 255 + 2 * 128 * 255 for each.
  static constexpr std::int64_t chunk = 16384;
  static_assert(chunk * (255 * 255 + 2 * 128 * 255) < (std::int64_t{1} << 31));

  /// A line's integers are x 2^scale; `largest` are the bits of its largest magnitude.
  POTL_BODY static int scale(std::uint32_t largest) {
    const int exponent = static_cast<int>(largest >> 23);
    return bits - 1 + 126 - (exponent < 1 ? 1 : exponent);
  }
  POTL_BODY static bool is_finite(std::uint32_t largest) { return largest < 0x7f800000U; }
  POTL_BODY static double power_of_two(int exponent) {
    const auto word = static_cast<std::uint64_t>(1023 + exponent) << 52;
#if defined(__CUDA_ARCH__)
    return __longlong_as_double(static_cast<long long>(word));
#else
    return std::bit_cast<double>(word);
#endif
  }
  POTL_BODY static std::int32_t integer(float x, std::uint32_t largest) {
    if (!is_finite(largest)) return 0;
    const double scaled = static_cast<double>(x) * power_of_two(scale(largest));  // exact
#if defined(__CUDA_ARCH__)
    const int q = __double2int_rn(scaled);
#else
    const int q = static_cast<int>(__builtin_rint(scaled));
#endif
    return q > limit ? limit : q < -limit ? -limit : q;
  }
  /// What an integer sum of two lines is multiplied with; NaN where one is not finite.
  POTL_BODY static double factor(std::uint32_t a, std::uint32_t b) {
    if (is_finite(a) && is_finite(b)) return power_of_two(-scale(a)) * power_of_two(-scale(b));
    return static_cast<double>(canonical_nan());
  }
};

/// The bits of each line's largest magnitude, raised from 0.
template <class Lines>
struct largest_of_lines {
  static constexpr unsigned threads = 256, lines = 32, depth = 1024;
  template <class Block>
  struct memory {};

  Lines from;
  std::int64_t first;  ///< product
  byte_planes to;

  POTL_BODY std::int64_t groups() const { return (from.count() + lines - 1) / lines; }
  POTL_BODY std::int64_t parts() const { return (from.depth() + depth - 1) / depth; }

  template <class Block>
  POTL_BODY void operator()(Block& block, largest_of_lines::memory<Block>&) const {
    block.each([&](unsigned thread) {
      const auto index = static_cast<std::int64_t>(block.index());
      const std::int64_t product = index / groups() / parts();
      const std::int64_t line = index / parts() % groups() * lines;
      const std::int64_t begin = index % parts() * depth;
      const std::int64_t end = begin + depth < from.depth() ? begin + depth : from.depth();
      const bool along_k = from.is_along_k();
      const unsigned step = along_k ? 32 : threads / lines;
      for (unsigned i = along_k ? thread / 32 : thread % lines; i < lines;
           i += along_k ? 8 : lines) {
        if (line + i >= from.count()) return;
        std::uint32_t most = 0;
        for (std::int64_t k = begin + (along_k ? thread % 32 : thread / lines); k < end;
             k += step) {
          const std::uint32_t word = magnitude_bits(from.at(first + product, line + i, k));
          if (most < word) most = word;
        }
        raise(to.largest[to.line(product, line + i)], most);
      }
    });
  }
};

/// The bytes of each line's integers.
template <unsigned Digits, class Lines>
struct bytes_of_lines {
  using form = integer_form<Digits>;
  static constexpr unsigned threads = form::threads, lines = 32, depth = 128, pitch = depth + 1;
  template <class Block>
  struct memory {
    typename Block::template shared<std::int32_t, lines * pitch> integers;
  };

  Lines from;
  std::int64_t first;  ///< product
  byte_planes to;

  POTL_BODY std::int64_t parts() const { return (to.slices * 32 + depth - 1) / depth; }

  template <class Block>
  POTL_BODY void operator()(Block& block, bytes_of_lines::memory<Block>& shared) const {
    const auto index = static_cast<std::int64_t>(block.index());
    const std::int64_t groups = to.lines / lines;
    const std::int64_t product = index / groups / parts();
    const std::int64_t line = index / parts() % groups * lines;
    const std::int64_t begin = index % parts() * depth;
    const bool along_k = from.is_along_k();
    block.each([&](unsigned thread) {
      for (unsigned i = thread; i < lines * depth; i += threads) {
        const unsigned l = along_k ? i / depth : i % lines, k = along_k ? i % depth : i / lines;
        const bool is_there = line + l < from.count() && begin + k < from.depth();
        const std::int32_t q = is_there
                                   ? form::integer(from.at(first + product, line + l, begin + k),
                                                   to.largest[to.line(product, line + l)])
                                   : 0;
        Block::write(shared.integers, l * pitch + k, q, thread);
      }
    });
    block.each([&](unsigned thread) {
      for (unsigned i = thread; i < lines * depth / 4; i += threads) {
        const unsigned word = i % 4, lane = i / 4 % 32, slice = i / 128 % 4, group = i / 512;
        if (begin / 32 + slice >= to.slices) continue;
        const byte_planes::place from_there = to.place_of(lane, word);
        const unsigned first_of =
            (group * 16 + from_there.line) * pitch + slice * 32 + from_there.four * 4;
        std::uint32_t digits[Digits] = {};
        POTL_UNROLL
        for (unsigned k = 0; k < 4; ++k) {
          const auto q = static_cast<std::uint32_t>(
              Block::template read<1>(shared.integers, first_of + k, thread).at[0]);
          POTL_UNROLL
          for (unsigned d = 0; d < Digits; ++d) digits[d] |= (q >> (8 * d) & 0xffU) << (8 * k);
        }
        std::uint32_t* const out =
            to.template at<Digits>(to.line(product, line) + group * 16, begin / 32 + slice);
        for (unsigned d = 0; d < Digits; ++d) {
          out[d * byte_planes::fragment + lane * 4 + word] = digits[d];
        }
      }
    });
  }
};

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
        integer_form<Digits>::factor(a.largest[a.line(product, row)],
                                     b.largest[b.line(product, column)]));
  }
};

/// Products of bytes: every block has a tile of one product, or a chunk of it.
template <unsigned Digits, class Targets>
struct integer_products {
  using form = integer_form<Digits>;
  static constexpr unsigned threads = form::threads;
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

  Targets targets;
  std::int64_t first;  ///< product
  byte_planes a, b;
  std::int64_t rows, columns;
  std::int64_t chunk;   ///< k of a chunk
  std::int64_t chunks;  ///< of a product
  split_sums sums;      ///< no data: each product is one chunk

  POTL_BODY std::int64_t tiles_across() const {
    return (columns + form::columns - 1) / form::columns;
  }
  POTL_BODY std::int64_t tiles() const {
    return (rows + form::rows - 1) / form::rows * tiles_across();
  }

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
          part == 0 ? rows_at : columns_at + (part - 1) * b.slices * slice_words;
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
        const auto words =
            words_of(shared, stage, form::rows + column_of(thread) + J * 8, d, thread);
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

  /// What the levels of element (i, j, e) of a thread come to.
  POTL_BODY static std::int64_t total(const thread_state& mine, unsigned i, unsigned j,
                                      unsigned e) {
    std::int64_t out = 0;
    POTL_UNROLL
    for (unsigned level = form::levels; level-- > 0;) out = out * 256 + mine.sums[level][i][j][e];
    return out;
  }

  /// The thread's elements of a tile, or of a chunk of it.
  POTL_BODY void put(const thread_state& mine, std::int64_t product, std::int64_t row,
                     std::int64_t column, unsigned thread) const {
    const auto target = targets.of(first + product);
    POTL_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      POTL_UNROLL
      for (unsigned j = 0; j < 4; ++j) {
        POTL_UNROLL
        for (unsigned e = 0; e < 4; ++e) {
          const std::int64_t r = row + row_of(thread) + i * 16 + thread % 32 / 4 + e / 2 * 8;
          const std::int64_t s = column + column_of(thread) + j * 8 + thread % 4 * 2 + e % 2;
          if (r >= rows || s >= columns) continue;
          const std::int64_t sum = total(mine, i, j, e);
          if (sums.data != nullptr) {
            split_sum& to = sums.data[(product * sums.rows + r) * sums.columns + s];
            add_together(to.low, static_cast<std::uint64_t>(sum) & 0xffffffffU);
            add_together(to.high, static_cast<std::uint64_t>(sum >> 32));
          } else {
            target.at(r, s) = numeric::detail::scaled_back(
                sum, form::factor(a.largest[a.line(product, r)], b.largest[b.line(product, s)]));
          }
        }
      }
    }
  }

  template <class Block>
  POTL_BODY void operator()(Block& block, memory<Block>& shared) const {
    const auto index = static_cast<std::int64_t>(block.index());
    const std::int64_t part = index % chunks, tile = index / chunks % tiles();
    const std::int64_t product = index / chunks / tiles();
    const std::int64_t row = tile / tiles_across() * form::rows;
    const std::int64_t column = tile % tiles_across() * form::columns;
    const std::int64_t first_slice = part * (chunk / form::depth);
    // Those of the slice that is brought next.
    const std::uint32_t* rows_at = a.template at<Digits>(a.line(product, row), first_slice);
    const std::uint32_t* columns_at = b.template at<Digits>(b.line(product, column), first_slice);
    const std::int64_t left = a.slices - first_slice;
    const std::int64_t slices = left < chunk / form::depth ? left : chunk / form::depth;
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

}  // namespace potl::cuda

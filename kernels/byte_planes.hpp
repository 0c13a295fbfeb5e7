// SPDX-License-Identifier: Apache-2.0
// Operands of products in xint24 and xint16 as bytes (integers.hpp). Private: needs block.hpp's
// macros.
//
// Exact because a line is scaled to 24 (or 16) bits by its largest exponent, which is a maximum,
// and rounded once. An integer is cut into its bytes: the highest has the sign. Lines beyond the
// edge and k beyond the depth are zeros, which add nothing.
#pragma once

#include <bit>
#include <cstdint>

#include <potl/numeric/gemm.hpp>

#include "block.hpp"
#include "convolution.hpp"

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

/// How the bytes of an operand lie: as left or right one of a warp's registers, or as right one in
/// shared memory (device_block::multiply_rows()).
enum class operand_side : std::uint8_t { left, right, shared_right };

/// An operand as bytes, four k in a word, in the order in which warps multiply them: [product][64
/// lines][32 k][16 lines][digit][lane][word], or a shared right one [digit][16 lines]. Lines and k
/// are filled up with zeros. Where all products share it there is one.
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

  /// Where 16 lines of a slice begin, and how far apart their digits are.
  template <unsigned Digits>
  POTL_BODY std::uint32_t* at(std::int64_t line, std::int64_t slice) const {
    return words + (line / 64 * slices + slice) * slice_words<Digits> +
           line % 64 / 16 * (side == operand_side::shared_right ? fragment : Digits * fragment);
  }
  POTL_BODY unsigned digit_step() const {
    return side == operand_side::shared_right ? 4 * fragment : fragment;
  }
  /// Whose word a lane has: a line of the 16, and four k of the 32. In the layout of
  /// mma.m16n8k32, a left operand has lines 8 apart first, a right one is two operands of 8 lines.
  struct place {
    unsigned line, four;
  };
  POTL_BODY place place_of(unsigned lane, unsigned word) const {
    if (side == operand_side::shared_right) {
      return {lane / 16 * 8 + lane % 8, lane / 8 % 2 * 4 + word};
    }
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
  POTL_BODY static float float_power_of_two(int exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
  }
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
    // Exact, or so small that it is rounded to 0. The largest power of two of a float is 2^127.
    const int all = scale(largest), once = all > 100 ? 100 : all;
    const float scaled = x * float_power_of_two(once) * float_power_of_two(all - once);
#if defined(__CUDA_ARCH__)
    const int q = __float2int_rn(scaled);
#else
    const int q = static_cast<int>(__builtin_rintf(scaled));
#endif
    return q > limit ? limit : q < -limit ? -limit : q;
  }
  /// What an integer sum is multiplied with for each of its two lines; NaN where one is not finite.
  POTL_BODY static double factor(std::uint32_t largest) {
    return is_finite(largest) ? power_of_two(-scale(largest))
                              : static_cast<double>(canonical_nan());
  }
};

/// The bits of each line's largest magnitude. With several parts they are raised, from 0.
template <class Lines>
struct largest_of_lines {
  static constexpr unsigned threads = 256, lines = 32, depth = 1024, pitch = 33;
  template <class Block>
  struct memory {
    typename Block::template shared<std::uint32_t, lines * pitch> found;
  };

  Lines from;
  std::int64_t first;  ///< product
  byte_planes to;

  POTL_BODY std::int64_t groups() const { return (from.count() + lines - 1) / lines; }
  POTL_BODY std::int64_t parts() const {
    return from.depth() > depth ? (from.depth() + depth - 1) / depth : 1;
  }

  template <class Block>
  POTL_BODY void operator()(Block& block, largest_of_lines::memory<Block>& shared) const {
    const auto index = static_cast<std::int64_t>(block.index());
    const std::int64_t product = index / groups() / parts();
    const std::int64_t line = index / parts() % groups() * lines;
    const std::int64_t begin = index % parts() * depth;
    const std::int64_t end = begin + depth < from.depth() ? begin + depth : from.depth();
    const bool along_k = from.is_along_k();
    // Neighbours read neighbours: a line belongs to a warp, or to eight threads of different ones.
    const unsigned step = along_k ? 32 : threads / lines;
    block.each([&](unsigned thread) {
      for (unsigned i = along_k ? thread / 32 : thread % lines; i < lines;
           i += along_k ? 8 : lines) {
        const unsigned place = along_k ? thread % 32 : thread / lines;
        std::uint32_t most = 0;
        if (line + i < from.count()) {
          for (std::int64_t k = begin + place; k < end; k += step) {
            const std::uint32_t word = magnitude_bits(from.at(first + product, line + i, k));
            if (most < word) most = word;
          }
        }
        Block::write(shared.found, i * pitch + place, most, thread);
      }
    });
    block.each([&](unsigned thread) {
      if (thread >= lines || line + thread >= from.count()) return;
      std::uint32_t most = 0;
      for (unsigned i = 0; i < step; ++i) {
        const std::uint32_t word =
            Block::template read<1>(shared.found, thread * pitch + i, thread).at[0];
        if (most < word) most = word;
      }
      std::uint32_t& out = to.largest[to.line(product, line + thread)];
      if (parts() == 1) {
        out = most;
      } else {
        raise(out, most);
      }
    });
  }
};

/// The bytes of each line's integers.
template <unsigned Digits, class Lines>
struct bytes_of_lines {
  using form = integer_form<Digits>;
  static constexpr unsigned threads = form::threads, lines = 32, depth = 128, pitch = depth + 1;
  static constexpr unsigned share = lines * depth / threads;  ///< of a thread
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
      const auto line_of = [&](unsigned i) {
        return along_k ? thread / depth + i * (threads / depth) : thread % lines;
      };
      const auto k_of = [&](unsigned i) {
        return along_k ? thread % depth : thread / lines + i * (threads / lines);
      };
      // So many are on their way at once.
      float values[share];
      POTL_UNROLL
      for (unsigned i = 0; i < share; ++i) {
        const std::int64_t l = line + line_of(i), k = begin + k_of(i);
        const bool is_there = l < from.count() && k < from.depth();
        values[i] = is_there ? from.at(first + product, l, k) : 0.0F;
      }
      POTL_UNROLL
      for (unsigned i = 0; i < share; ++i) {
        const std::int64_t l = line + line_of(i);
        const std::uint32_t largest = l < from.count() ? to.largest[to.line(product, l)] : 0;
        Block::write(shared.integers, line_of(i) * pitch + k_of(i),
                     form::integer(values[i], largest), thread);
      }
    });
    block.each([&](unsigned thread) {
      POTL_UNROLL
      for (unsigned i = thread; i < lines * depth / 4; i += threads) {
        const unsigned word = i % 4, lane = i / 4 % 32, slice = i / 128 % 4, group = i / 512;
        if (begin / 32 + slice >= to.slices) continue;
        const byte_planes::place from_there = to.place_of(lane, word);
        const unsigned first_of =
            (group * 16 + from_there.line) * pitch + slice * 32 + from_there.four * 4;
        std::uint32_t q[4];
        POTL_UNROLL
        for (unsigned k = 0; k < 4; ++k) {
          q[k] = static_cast<std::uint32_t>(
              Block::template read<1>(shared.integers, first_of + k, thread).at[0]);
        }
        std::uint32_t* const out =
            to.template at<Digits>(to.line(product, line) + group * 16, begin / 32 + slice);
        POTL_UNROLL
        for (unsigned d = 0; d < Digits; ++d) {
          out[d * to.digit_step() + lane * 4 + word] = bytes_of(q, d);
        }
      }
    });
  }
};

}  // namespace potl::cuda

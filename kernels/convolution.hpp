// SPDX-License-Identifier: Apache-2.0
// The bodies of convolutions in ord32 (numeric/convolution.hpp) as products of matrices that nobody
// stores. Private: needs block.hpp's macros.
//
// Exact because it is the body of gemm.hpp: k ascends in the order of
// docs/reference/convolution.md, and what lies in the padding is multiplied as +0. Only how
// operands are found is new: an element of a line at k lies at the sum of two points, one of the
// line and one of k, in lists that are computed first. Lines beyond the edge are filled with zeros
// and thrown away.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gemm.hpp"

namespace potl::cuda {

/// A part of an element's address, and of its position in an image.
struct alignas(16) gather_point {
  std::int32_t place, z, y, x;
};

/// Points of `major` times a grid: point (m, i, j, k) is m major_step further, and along axis a at
/// first[a] + i step[a], whose neighbours are `place_step[a]` elements apart.
struct point_list {
  std::int32_t major, major_step;
  std::int32_t count[3], first[3], step[3], place_step[3];
  bool has_position;   ///< otherwise the position is 0
  std::int64_t begin;  ///< in the memory of all lists

  POTL_BODY std::int64_t size() const {
    return std::int64_t{major} * count[0] * count[1] * count[2];
  }
  POTL_BODY gather_point at(std::int64_t index) const {
    std::int32_t rest = static_cast<std::int32_t>(index);
    std::int32_t position[3], place = 0;
    for (int axis = 2; axis >= 0; --axis) {
      position[axis] = first[axis] + rest % count[axis] * step[axis];
      place += position[axis] * place_step[axis];
      rest /= count[axis];
    }
    place += rest * major_step;
    if (!has_position) return {place, 0, 0, 0};
    return {place, position[0], position[1], position[2]};
  }
};

/// The lists of a product: where lines of A begin and what k adds, the same for B, rows and columns
/// of C.
struct gather_lists {
  enum { a_lines, a_depth, b_lines, b_depth, c_rows, c_columns, count };
  point_list of[count];
};

/// An item: a point of any list.
struct list_points {
  gather_lists lists;
  gather_point* out;
  POTL_BODY void operator()(std::uint64_t i) const {
    unsigned which = 0;
    const auto index = static_cast<std::int64_t>(i);
    while (index >= lists.of[which].begin + lists.of[which].size()) ++which;
    out[i] = lists.of[which].at(index - lists.of[which].begin);
  }
};

/// One operand: lines, and k along them, of which those outside of `inside` are +0.
struct gathered {
  const float* data;
  const gather_point *lines, *depth;
  std::int64_t line_count;
  std::int32_t inside[3];
  bool along_k;  ///< k is denser in memory than lines are

  POTL_BODY bool is_inside(const gather_point& a, const gather_point& b) const {
    const auto within = [](std::int32_t position, std::int32_t size) {
      return static_cast<std::uint32_t>(position) < static_cast<std::uint32_t>(size);
    };
    return within(a.z + b.z, inside[0]) && within(a.y + b.y, inside[1]) &&
           within(a.x + b.x, inside[2]);
  }
};

/// What gemm_route is for operands in memory.
template <class Tile, unsigned Lines>
class gather_route {
 public:
  using shares = slice_shares<Tile, Lines>;
  static constexpr bool can_be_whole = false;
  struct state {
    std::int64_t k;            ///< where the next slice begins
    gather_point line, depth;  ///< of all elements that have it in common
    unsigned lines, now;       ///< as in gemm_route
  };

  POTL_BODY gather_route(const gathered& operand, std::int64_t first_line)
      : from_(operand), first_(first_line), of_(operand.along_k) {}

  POTL_BODY void begin(state& mine, std::int64_t k, unsigned thread) const {
    mine = {k, line_at(of_.line(thread)), {}, 0, 0};
    for (unsigned i = 0; i < shares::count; ++i) {
      if (first_ + of_.line(thread) + i * of_.line_stride < from_.line_count) mine.lines |= 1U << i;
    }
  }
  POTL_BODY void begin_slice(state& mine, std::int64_t left, unsigned thread) const {
    mine.now = mine.lines & of_.within(left, thread);
    if (of_.along_k) mine.depth = from_.depth[mine.now != 0 ? mine.k + of_.k(thread) : 0];
  }
  template <class Block>
  POTL_BODY void fetch(const state& mine, unsigned i, gemm_slices<Tile, Lines, Block>& to,
                       unsigned stage, unsigned thread) const {
    const bool is_asked = (mine.now >> i & 1U) != 0;
    const unsigned k = of_.k(thread) + i * of_.k_stride;
    const gather_point a =
        of_.along_k ? line_at(of_.line(thread) + i * of_.line_stride) : mine.line;
    const gather_point b = of_.along_k ? mine.depth : from_.depth[is_asked ? mine.k + k : 0];
    const bool is_there = is_asked && from_.is_inside(a, b);
    Block::copy(to.of, of_.place(to, stage, thread) + i * of_.place_step(to),
                from_.data + (is_there ? a.place + b.place : 0), is_there, thread);
  }
  POTL_BODY void end_slice(state& mine) const { mine.k += Tile::depth; }

 private:
  POTL_BODY gather_point line_at(unsigned line) const {
    return from_.lines[first_ + line < from_.line_count ? first_ + line : 0];
  }

  gathered from_;
  std::int64_t first_;
  shares of_;
};

/// C of a gathered product.
struct gather_target {
  float* data;
  const gather_point *rows, *columns;
  std::int64_t row_count, column_count;

  POTL_BODY bool has(std::int64_t row, std::int64_t column) const {
    return row < row_count && column < column_count;
  }
  POTL_BODY float& at(std::int64_t row, std::int64_t column) const {
    return data[rows[row].place + columns[column].place];
  }
};

/// A product for each group, whose operands begin `*_step` elements further. A lies in memory with
/// strides, or is gathered too. With Split a block has a chunk of a tile.
template <class Tile, class A, bool Split>
struct gathered_products {
  static constexpr unsigned threads = Tile::threads, resident = Tile::resident;
  template <class Block>
  using memory = gemm_memory<Tile, Block>;

  A a;
  gathered b;
  gather_target c;
  std::int64_t depth, a_step, b_step, c_step, groups;
  chunk_sums sums;

  POTL_BODY gather_target of(std::int64_t group) const {
    gather_target to = c;
    to.data += group * c_step;
    return to;
  }

  POTL_BODY std::int64_t across() const {
    return (c.column_count + Tile::columns - 1) / Tile::columns;
  }
  POTL_BODY std::int64_t tiles() const {
    return (c.row_count + Tile::rows - 1) / Tile::rows * across();
  }

  template <class Block>
  POTL_BODY void operator()(Block& block, memory<Block>& shared) const {
    constexpr bool is_matrix = std::is_same_v<A, numeric::matrix<const float>>;
    using a_route =
        std::conditional_t<is_matrix, gemm_route<Tile, Tile::rows>, gather_route<Tile, Tile::rows>>;
    const auto index = static_cast<std::int64_t>(block.index());
    const std::int64_t group = index / tiles() % groups, tile = index % tiles();
    const std::int64_t row = tile / across() * Tile::rows;
    const std::int64_t column = tile % across() * Tile::columns;
    A left = a;
    gathered right = b;
    left.data += group * a_step;
    right.data += group * b_step;
    const a_route rows(left, row);
    const gather_route<Tile, Tile::columns> columns(right, column);
    if constexpr (Split) {
      const std::int64_t chunk = sums.first + index / tiles() / groups;
      multiply_tile<Tile>(block, shared, rows, columns, sums.of(chunk, group), row, column,
                          chunk_sums::range(chunk, depth));
    } else {
      multiply_tile<Tile>(block, shared, rows, columns, of(group), row, column, {0, depth, true});
    }
  }
};

}  // namespace potl::cuda

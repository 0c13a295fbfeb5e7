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

#include <array>
#include <cstdint>

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

  POTL_BODY float at(std::int64_t line, std::int64_t k) const {
    const gather_point a = lines[line], b = depth[k];
    const auto within = [](std::int32_t position, std::int32_t size) {
      return static_cast<std::uint32_t>(position) < static_cast<std::uint32_t>(size);
    };
    const bool is_inside = within(a.z + b.z, inside[0]) && within(a.y + b.y, inside[1]) &&
                           within(a.x + b.x, inside[2]);
    return is_inside ? data[a.place + b.place] : 0.0F;
  }
};

template <class Tile, unsigned Lines>
class gather_share;

/// What gemm_route is for operands in memory.
template <class Tile, unsigned Lines>
struct gather_route {
  using share_type = gather_share<Tile, Lines>;
  static constexpr unsigned share = Lines * Tile::depth / Tile::threads;

  POTL_BODY gather_route(const gathered& operand, std::int64_t first_line)
      : from(operand),
        first(first_line),
        line_stride(operand.along_k ? Tile::threads / Tile::depth : 0),
        k_stride(operand.along_k ? 0 : Tile::threads / Lines) {}

  POTL_BODY unsigned line(unsigned thread) const {
    return from.along_k ? thread / Tile::depth : thread % Lines;
  }
  POTL_BODY unsigned k(unsigned thread) const {
    return from.along_k ? thread % Tile::depth : thread / Lines;
  }

  gathered from;
  std::int64_t first;
  unsigned line_stride, k_stride;
};

template <class Tile, unsigned Lines>
class gather_share {
 public:
  using route = gather_route<Tile, Lines>;

  POTL_BODY void begin(const route&, unsigned) { k_ = 0; }

  POTL_BODY void fetch(const route& way, std::int64_t left, unsigned thread) {
    POTL_UNROLL
    for (unsigned i = 0; i < route::share; ++i) {
      const std::int64_t line = way.first + way.line(thread) + i * way.line_stride;
      const unsigned k = way.k(thread) + i * way.k_stride;
      value_[i] = line < way.from.line_count && k < left ? way.from.at(line, k_ + k) : 0.0F;
    }
    k_ += Tile::depth;
  }

  template <class Block>
  POTL_BODY void put(const route& way, gemm_slices<Tile, Lines, Block>& to, unsigned which,
                     unsigned thread) const {
    put_slice<Tile>(way, value_, to, which, thread);
  }

 private:
  std::int64_t k_;
  float value_[route::share];
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

/// A product for each group, whose operands begin `*_step` elements further.
template <class Tile>
struct gathered_products {
  static constexpr unsigned threads = Tile::threads;
  template <class Block>
  using memory = gemm_memory<Tile, Block>;

  gathered a, b;
  gather_target c;
  std::int64_t depth, a_step, b_step, c_step;

  POTL_BODY std::int64_t across() const {
    return (c.column_count + Tile::columns - 1) / Tile::columns;
  }
  POTL_BODY std::int64_t tiles() const {
    return (c.row_count + Tile::rows - 1) / Tile::rows * across();
  }

  template <class Block>
  POTL_BODY void operator()(Block& block, memory<Block>& shared) const {
    const auto index = static_cast<std::int64_t>(block.index());
    const std::int64_t group = index / tiles(), tile = index % tiles();
    const std::int64_t row = tile / across() * Tile::rows;
    const std::int64_t column = tile % across() * Tile::columns;
    gathered left = a, right = b;
    gather_target to = c;
    left.data += group * a_step;
    right.data += group * b_step;
    to.data += group * c_step;
    const gather_route<Tile, Tile::rows> rows(left, row);
    const gather_route<Tile, Tile::columns> columns(right, column);
    multiply_tile<Tile>(block, shared, rows, columns, to, row, column, depth);
  }
};

}  // namespace potl::cuda

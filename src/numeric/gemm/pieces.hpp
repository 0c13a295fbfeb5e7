// SPDX-License-Identifier: Apache-2.0
// Parts of C that are finished piece by piece, so that the kernels of the end find adjacent
// columns, and what they leave in doubt fits on the stack.
#pragma once

#include <algorithm>
#include <cstdint>

#include <potl/numeric/detail/matrix.hpp>

#include "numeric/gemm/product.hpp"

namespace potl::numeric::detail {

constexpr std::int64_t piece_side = 16;
constexpr std::size_t piece_elements = std::size_t{piece_side} * piece_side;

/// finish(piece, its sums) for each piece of a part.
template <class Sum, class Finish>
void for_pieces(const area& part, const Sum* sums, std::int64_t sums_row, const Finish& finish) {
  for (std::int64_t top = 0; top < part.rows; top += piece_side) {
    for (std::int64_t left = 0; left < part.columns; left += piece_side) {
      const area here{part.row + top, part.column + left, std::min(piece_side, part.rows - top),
                      std::min(piece_side, part.columns - left)};
      finish(here, sums + top * sums_row + left);
    }
  }
}

/// write(y, y_row) puts a piece where its columns are adjacent: in C, or aside and then in C.
template <class Write>
void write_piece(const matrix<float>& c, const area& here, const Write& write) {
  if (c.column_stride == 1) return write(&c(here.row, here.column), c.row_stride);
  float aside[piece_elements];
  write(aside, piece_side);
  for (std::int64_t i = 0; i < here.rows; ++i) {
    for (std::int64_t j = 0; j < here.columns; ++j) {
      c(here.row + i, here.column + j) = aside[i * piece_side + j];
    }
  }
}

}  // namespace potl::numeric::detail

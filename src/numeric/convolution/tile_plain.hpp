// SPDX-License-Identifier: Apache-2.0
// Elements moved one by one, for instruction sets without shuffles of ours. Only translation units
// that are compiled for every processor include this: the linker keeps one copy of an inline
// function.
#pragma once

#include <cstdint>

namespace potl::numeric::conv {

struct plain_moves {
  static void transpose(const float* source, std::int64_t source_row, std::int64_t rows,
                        std::int64_t columns, float* target, std::int64_t target_row) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        target[column * target_row + row] = source[row * source_row + column];
  }
  static void interleave(const float* even, const float* odd, std::int64_t count, float* target) {
    for (std::int64_t i = 0; i < count; ++i) {
      target[2 * i] = even[i];
      target[2 * i + 1] = odd[i];
    }
  }
};

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// A matrix that lives elsewhere: pointer, size and strides in elements (any sign, 0 repeats).
#pragma once

#include <cstdint>

namespace potl::numeric {

template <class Element>
struct matrix {
  Element* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  Element& operator()(std::int64_t row, std::int64_t column) const noexcept {
    return data[row * row_stride + column * column_stride];
  }
  matrix transposed() const noexcept { return {data, columns, rows, column_stride, row_stride}; }
  operator matrix<const Element>() const noexcept {
    return {data, rows, columns, row_stride, column_stride};
  }
};

/// Rows one after the other.
template <class Element>
matrix<Element> row_major(Element* data, std::int64_t rows, std::int64_t columns) noexcept {
  return {data, rows, columns, columns, 1};
}

}  // namespace potl::numeric

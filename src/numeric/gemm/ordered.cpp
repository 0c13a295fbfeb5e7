// SPDX-License-Identifier: Apache-2.0
#include "numeric/gemm/blocked.hpp"
#include "numeric/gemm/modes.hpp"

namespace potl::numeric::detail {
namespace {

/// For a C whose columns lie apart: sums are finished in work space and copied.
template <class Value>
struct to_strided {
  matrix<Value> c;
  static constexpr bool finishes = true;
  void finish(const area& part, const Value* sums, std::int64_t sums_row) const noexcept {
    for (std::int64_t i = 0; i < part.rows; ++i) {
      for (std::int64_t j = 0; j < part.columns; ++j) {
        c(part.row + i, part.column + j) = sums[i * sums_row + j];
      }
    }
  }
};

template <class Value>
void multiply(const kernels<Value, Value>& body, matrix<const Value> a, matrix<const Value> b,
              matrix<Value> c, const executor& threads) {
  if (c.columns == 1) c.column_stride = 1;
  if (c.rows == 1) c.row_stride = 1;
  // Lanes run along what is contiguous in C, and its longer side; fused(a, b, c) is fused(b, a, c).
  const bool upright = c.column_stride != 1 || (c.columns == 1 && c.rows > 1);
  if (upright && c.row_stride == 1) {
    return multiply(body, b.transposed(), a.transposed(), c.transposed(), threads);
  }
  const product<Value, Value, Value> p{body, a, b, ord_chunk, nullptr, threads};
  if (c.column_stride == 1) {
    multiply_blocked(p, to_memory<Value>{c.data, c.row_stride});
  } else {
    multiply_blocked(p, to_strided<Value>{c});
  }
}

}  // namespace

void ordered(matrix<const float> a, matrix<const float> b, matrix<float> c,
             const executor& threads) {
  multiply(active_f32(), a, b, c, threads);
}

void ordered(matrix<const double> a, matrix<const double> b, matrix<double> c,
             const executor& threads) {
  multiply(active_f64(), a, b, c, threads);
}

}  // namespace potl::numeric::detail

// SPDX-License-Identifier: Apache-2.0
// What each instruction set offers for reductions.
#pragma once

#include <cstddef>

#include "numeric/levels.hpp"

namespace potl::numeric::reductions {

/// What is reduced, and how.
enum class term {
  value,             ///< x
  square,            ///< x x
  magnitude,         ///< |x|
  product_of_two,    ///< x y
  deviation,         ///< (x - m)^2
  weighted,          ///< x ((y - m) r): a gradient times a normalised value
  factor,            ///< x, multiplied
  maximum,           ///< x, the largest
  minimum,           ///< x, the smallest
  largest_magnitude  ///< |x|, the largest
};

/// Elements of a strip in `columns`.
constexpr std::size_t strip_columns = 128;

template <class Real>
struct operands {
  const Real* x;
  const Real* y;
  const Real* m;  ///< one for each row, or for each column where `by_column`
  const Real* r;
  bool by_column;
};

template <class Real>
struct kernels {
  /// out[row] = T(count) of the terms of each contiguous row.
  void (*rows)(term, const operands<Real>&, std::size_t rows, std::size_t count, Real* out);
  /// out[column], for up to 4096 rows of which `columns` (at most strip_columns) neighbouring
  /// elements are taken; rows are `stride` elements apart.
  void (*columns)(term, const operands<Real>&, std::size_t rows, std::size_t columns,
                  std::size_t stride, Real* out);
  /// T of the terms of `count` pieces of `size` elements, a multiple of 32, `stride` elements
  /// apart, with one m and r.
  void (*pieces)(term, const operands<Real>&, std::size_t count, std::size_t size,
                 std::size_t stride, Real* out);
  /// The terms themselves, with one m and r: for pieces of other sizes.
  void (*terms)(term, const operands<Real>&, std::size_t count, Real* out);

  /// Rows of `count`, as numeric/detail/softmax.hpp defines them. softmax: logsumexp too if not
  /// null.
  void (*softmax)(const Real* x, Real* y, Real* logsumexp, std::size_t rows, std::size_t count);
  void (*log_softmax)(const Real* x, Real* y, std::size_t rows, std::size_t count);
  void (*logsumexp)(const Real* x, Real* y, std::size_t rows, std::size_t count);
  void (*softmax_backward)(const Real* dy, const Real* y, Real* dx, std::size_t rows,
                           std::size_t count);
  void (*log_softmax_backward)(const Real* dy, const Real* y, Real* dx, std::size_t rows,
                               std::size_t count);

  /// fma((x - m) r, w, b): w and b are arrays of `count` or null, or one each where `one_weight`.
  void (*normalize)(const Real* x, Real m, Real r, const Real* w, const Real* b, bool one_weight,
                    Real* y, std::size_t count);
  /// Mean and 1 / sqrt(variance + epsilon) of a contiguous row.
  void (*moments)(const Real* x, Real epsilon, std::size_t count, Real* mean, Real* reciprocal);
  /// The gradient of a contiguous row; w is an array of `count` or null.
  void (*normalize_backward)(const Real* dy, const Real* x, Real m, Real r, const Real* w, Real* dx,
                             std::size_t count);
  /// ((dy - a) - h b) factor, h = (x - m) r.
  void (*normalize_slope)(const Real* dy, const Real* x, Real m, Real r, Real a, Real b,
                          Real factor, Real* dx, std::size_t count);
  /// The same two of `rows` contiguous rows, with one of each number for each column; w and b are
  /// arrays or null.
  void (*normalize_columns)(const Real* x, const Real* m, const Real* r, const Real* w,
                            const Real* b, Real* y, std::size_t rows, std::size_t count);
  void (*slope_columns)(const Real* dy, const Real* x, const Real* m, const Real* r, const Real* a,
                        const Real* b, const Real* factor, Real* dx, std::size_t rows,
                        std::size_t count);
};

using both_kernels = kernels_of_both<kernels>;

POTL_LEVELS(both_kernels, kernels)

template <class Real>
const kernels<Real>& active() {
  return active_kernels().of<Real>();
}

}  // namespace potl::numeric::reductions

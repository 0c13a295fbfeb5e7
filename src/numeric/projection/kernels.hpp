// SPDX-License-Identifier: Apache-2.0
// What each instruction set offers for projections.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/levels.hpp"

namespace potl::numeric::projections {

/// A part of a matrix and what is asked of it. Vectors of `x` are `x_step` apart, those of `out`
/// are `out_step` apart; all of them, `squares`, `weights` and `magnitudes` begin at the part.
template <class Real>
struct part {
  const Real* m;
  std::int64_t rows, columns, stride;
  const double* x;
  std::int64_t x_step;
  double* out;
  std::int64_t out_step;
  double* squares;
  const double* weights;
  double* magnitudes;
};

/// Of `terms` shifts of a matrix, each times its factor, the sum is added to another.
struct shifted {
  const double* from;
  std::int64_t from_stride;
  const std::int64_t* offsets;
  const double* factors;
  std::size_t terms;
  double* to;
  std::int64_t to_stride, rows, columns;
};

template <class Real>
struct kernels {
  /// For 0, 1, 2, 4 and 8 vectors. Rows are contiguous, `stride` elements apart; results are
  /// written.
  void (*by_row[5])(const part<Real>&);
  /// Columns are contiguous, `stride` elements apart; results are written.
  void (*by_column[5])(const part<Real>&);
  void (*add_shifted)(const shifted&);
};

using both_kernels = kernels_of_both<kernels>;

POTL_LEVELS(both_kernels, kernels)

}  // namespace potl::numeric::projections

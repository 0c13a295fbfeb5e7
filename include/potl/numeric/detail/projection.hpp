// SPDX-License-Identifier: Apache-2.0
// A matrix times a few vectors, and the sizes of its rows, in one pass over its elements.
//
// Claims: out[p] = M x[p] with float64 sums of exact or once rounded terms; a NaN or an infinity
// of M or x is in every sum that it belongs to. Products of a sum are added in an order that
// depends on the instruction set and on the strides of M, so the last bits may too.
// Cost: one pass over M for up to eight vectors. Rows or columns that are contiguous are read where
// they lie; other layouts are copied, a few rows at a time.
#pragma once

#include <cstdint>
#include <span>

#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/matrix.hpp>

namespace potl::numeric {

/// What is asked of one pass. Vector p of `x` begins at x + p * M.columns, and its product at
/// out + p * M.rows. What is null is left out.
struct projection {
  const double* x = nullptr;
  double* out = nullptr;
  int vectors = 0;
  double* squares = nullptr;        ///< of each row: the sum of the squares of its elements
  const double* weights = nullptr;  ///< for `magnitudes`, one for each column
  double* magnitudes = nullptr;     ///< of each row: sum over the columns of |element| weight
};

void project(const matrix<const float>& m, const projection& what, const executor& workers);
void project(const matrix<const double>& m, const projection& what, const executor& workers);

/// out(i, j) += sum over t of factors[t] times what lies offsets[t] elements behind m(i, j): a sum
/// that is rounded once for each t. Rows of both are contiguous.
void add_shifted(const matrix<const double>& m, std::span<const std::int64_t> offsets,
                 const double* factors, const matrix<double>& out);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Small dense linear algebra in a fixed order: LU with partial pivoting, Cholesky, Householder's
// QR.
//
// Claims: each result is a list of IEEE double operations on its matrix, row-major: sums from the
// first term to the last, nothing fused, nothing blocked. Errors are those of the textbook
// algorithms (Golub and Van Loan, "Matrix Computations", 3.4, 4.2 and 5.2).
// Cost: about n^3 scalar operations on one thread.
#pragma once

#include <cstdint>
#include <span>

namespace potl::numeric {

/// An m x n matrix, row-major.
struct double_matrix {
  double* data;
  std::int64_t rows, columns;
  [[nodiscard]] double& operator()(std::int64_t i, std::int64_t j) const noexcept {
    return data[i * columns + j];
  }
};

/// P A = L U, in place; pivots[i] - 1 is the row that row i changed places with. The largest pivot
/// is taken, the first of equal ones. Returns the number (from 1) of the first pivot that is 0, or
/// 0. `pivots` has the smaller of both sizes.
std::int32_t lu_factor(const double_matrix& a, std::span<std::int32_t> pivots) noexcept;

/// b = A^-1 b, or A^-T b with `transposed`. Each pivot must be from 1 to lu.rows, and lu square.
void lu_solve(const double_matrix& lu, std::span<const std::int32_t> pivots, bool transposed,
              const double_matrix& b) noexcept;

/// A = L L^T by the lower triangle, in place, zeros above. Returns the number (from 1) of the first
/// leading minor that is not positive, or 0; then what follows it is not factored.
std::int32_t cholesky(const double_matrix& a) noexcept;

/// A = Q R: R replaces a, zeros below; q has its columns from A.rows x k, k at most A.rows. The
/// signs are LAPACK's: a column with nothing below the diagonal stays as it is, others get the sign
/// against it. Columns, and what is left of each when its turn comes, are computed on at a power of
/// two that brings the largest element to 1/2 or more, below 1: no square overflows, or vanishes
/// beside nothing larger.
void qr(const double_matrix& a, const double_matrix& q);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Eigenvalues of symmetric matrices and singular values, with their vectors.
//
// Claims: each result is a list of IEEE double operations that depends on the matrix alone: same
// bits for any number of threads, instruction set and neighbour. The matrix is scaled by a power of
// two that brings its largest element to 1/2 or more, below 1; reflections make it tridiagonal, or
// bidiagonal, from the first row on; then implicit steps with shifts turn what stands beside the
// diagonal to 0 (Golub and Van Loan, "Matrix Computations", 8.3 and 8.6; for singular matrices the
// step without a shift of Demmel and Kahan, 1990). Errors are some 2^-53 of the largest value.
//
// Signs: in each column of V, or of U for singular values, the element of the largest size, the
// first of equal ones, is positive. The column of V for the same singular value changes its sign
// along. Columns of V that belong to no singular value follow the rule of U's.
//
// Vectors of equal values, and of values that differ by rounding errors, are one basis of many.
//
// Cost: about 10 n^3 operations for eigenvalues, 20 n^3 for singular values of a square matrix, all
// vectors included; without them 2 n^3 and 3 n^3. Threads share one matrix.
#pragma once

#include <potl/numeric/detail/decomposition.hpp>
#include <potl/numeric/detail/executor.hpp>

#include <span>

namespace potl::numeric {

/// What became of a matrix. Without `found` the results are not defined.
enum class spectrum {
  found,
  not_finite,     ///< it has an element that is NaN or infinite
  not_converged,  ///< 30 steps for each value were not enough
};

/// A = V diag(values) V^T of a symmetric matrix, which is overwritten; both triangles are read.
/// Values ascend. `vectors` is V, n x n, or 0 x 0 where nobody asks for it.
spectrum eigenvalues(const double_matrix& a, std::span<double> values, const double_matrix& vectors,
                     const executor& workers);

/// A = U diag(values) V^T, m x n, which is overwritten. Values, of which there are as many as the
/// smaller of m and n, descend. u is m x k with k that number or m, v is n x k with that number or
/// n; both are 0 x 0 where nobody asks for them.
spectrum singular_values(const double_matrix& a, std::span<double> values, const double_matrix& u,
                         const double_matrix& v, const executor& workers);

}  // namespace potl::numeric

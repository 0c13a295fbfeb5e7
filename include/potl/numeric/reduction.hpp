// SPDX-License-Identifier: Apache-2.0
// Sums and other reductions in an order that depends on the number of terms alone.
//
// Claims: every sum of n terms here is T(n) (docs/reference/reduction.md): chunks of 4096 terms; in
// a chunk 32 interleaved partial sums from +0, term i into sum i mod 32, in order; the 32 sums are
// folded in halves (j and j + 16, j and j + 8, ...); the chunk sums are the terms of the next such
// sum. The order depends neither on layout, threads nor instruction set. A sum is +0 when n is 0,
// and never -0. Terms that are computed (squares, products) are rounded before they are added.
// Maxima and minima are exact: a NaN wins; of zeros with different signs +0 is larger. NaN results
// are canonical. Assumes round-to-nearest without flush-to-zero. Error of a sum: at most (134 + 134
// log_4096 n) u times the sum of magnitudes.
#pragma once

#include <cstdint>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// x is [outer][count][inner], contiguous; the result is [outer][inner].
struct reduction_shape {
  std::int64_t outer = 1;
  std::int64_t count = 0;
  std::int64_t inner = 1;
};

/// What is made of the terms.
enum class reduction {
  sum,
  mean,               ///< sum / count, one division
  sum_of_squares,     ///< of x * x, rounded
  sum_of_magnitudes,  ///< of |x|
  norm,               ///< sqrt(sum_of_squares)
  product,            ///< the tree of `sum` with products, from 1
  maximum,            ///< needs count > 0
  minimum,            ///< needs count > 0
  largest_magnitude,  ///< 0 when count is 0
};

/// The enumerator's name.
const char* to_string(reduction kind) noexcept;

// Each exists for float and double. Shapes with negative sizes, and maximum or minimum of nothing,
// throw potl::exception (usage).

/// [outer][count][inner] to [outer][inner].
void reduce(reduction kind, const reduction_shape& shape, const float* x, float* y,
            const executor& workers);
void reduce(reduction kind, const reduction_shape& shape, const double* x, double* y,
            const executor& workers);

/// Sum of x * y, each product rounded: [outer][count][inner] twice to [outer][inner].
void sum_products(const reduction_shape& shape, const float* x, const float* y, float* out,
                  const executor& workers);
void sum_products(const reduction_shape& shape, const double* x, const double* y, double* out,
                  const executor& workers);

/// mean = T(x) / count; variance = T((x - mean)^2) / (count - correction), 0 degrees of freedom or
/// fewer divide by +0. Either result may be null.
void variance(const reduction_shape& shape, const float* x, double correction, float* mean,
              float* variance, const executor& workers);
void variance(const reduction_shape& shape, const double* x, double correction, double* mean,
              double* variance, const executor& workers);

/// y[k] = y[k - 1] + x[k] along `count`, from the first element; y may be x.
void cumulative_sum(const reduction_shape& shape, const float* x, float* y,
                    const executor& workers);
void cumulative_sum(const reduction_shape& shape, const double* x, double* y,
                    const executor& workers);
/// The same with products.
void cumulative_product(const reduction_shape& shape, const float* x, float* y,
                        const executor& workers);
void cumulative_product(const reduction_shape& shape, const double* x, double* y,
                        const executor& workers);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Householder's reflections H = I - tau v v^T, with v[0] = 1.
#pragma once

#include <potl/numeric/detail/decomposition.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace potl::numeric {

struct reflection {
  double tau;    ///< 0: H changes nothing
  double value;  ///< what H makes of the first number; it makes 0 of the others
};

/// The one for the numbers in v, which becomes its vector. Squares are those of numbers at a power
/// of two that brings the largest to 1/2 or more, below 1.
reflection reflection_of(std::span<double> v);

/// H on the columns [first, last) of `a`, in its rows from `row` on, of which v has as many. Each
/// column's sum goes from the first row to the last; `sums` is memory for them.
void reflect(const double_matrix& a, std::span<const double> v, double tau, std::int64_t row,
             std::int64_t first, std::int64_t last, std::vector<double>& sums);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// One function per mode, behind gemm.hpp. Shapes fit and no extent of C or k is 0.
#pragma once

#include <cstdint>
#include <vector>

#include <potl/numeric/gemm.hpp>

#include "numeric/gemm/kernels.hpp"

namespace potl::numeric::detail {

void ordered(matrix<const float> a, matrix<const float> b, matrix<float> c,
             const executor& threads);
void ordered(matrix<const double> a, matrix<const double> b, matrix<double> c,
             const executor& threads);

void correctly_rounded(matrix<const float> a, matrix<const float> b, matrix<float> c,
                       const executor& threads);

/// The permutation of that number of 0 ... count - 1.
std::vector<std::int64_t> permutation(std::int64_t count, std::uint64_t number);

/// Appends near ties, their indices counted from `first_index`.
void rounded(matrix<const float> a, matrix<const float> b, matrix<float> c,
             const log64_options& options, const executor& threads, std::uint64_t first_index,
             std::vector<near_tie>& ties);

/// bits is 24 or 16.
void scaled_integers(int bits, matrix<const float> a, matrix<const float> b, matrix<float> c,
                     const executor& threads);

}  // namespace potl::numeric::detail

// SPDX-License-Identifier: Apache-2.0
// Many values combined into the elements that an index names: gradients of embeddings, gathers and
// maximum pooling, index_add, scatter_add.
//
// Claims: an element of y takes the values that name it one after the other, in ascending order of
// their position k along `count`, each by one rounded operation: y = y op x. Elements that no index
// names keep their bits. Same bits for any number of threads.
// Maxima and minima: a NaN wins and is canonical; of zeros with different signs +0 is larger.
// Assumes round-to-nearest without flush-to-zero. Cost: one pass. Whole rows are shared out among
// threads by index, each of which reads all indices; element by element each [outer] (or part of
// [inner]) is one task: a single long row runs in one thread.
#pragma once

#include <cstdint>
#include <span>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

enum class accumulation { add, multiply, maximum, minimum };

/// y is [outer][rows][inner], x is [outer][count][inner].
struct accumulation_shape {
  std::int64_t outer = 1;
  std::int64_t rows = 0;
  std::int64_t count = 0;
  std::int64_t inner = 1;
};

// Indices are in [0, rows); any other throws potl::exception (usage) before y changes. So do shapes
// with negative sizes.

/// y[o][index[k]][i] = y[...] op x[o][k][i]: whole rows; index is [count].
void accumulate_rows(accumulation op, const accumulation_shape& shape,
                     std::span<const std::int64_t> index, const float* x, float* y,
                     const executor& workers);
void accumulate_rows(accumulation op, const accumulation_shape& shape,
                     std::span<const std::int64_t> index, const double* x, double* y,
                     const executor& workers);

/// y[o][index[o][k][i]][i] = y[...] op x[o][k][i]; index is as large as x.
void accumulate_elements(accumulation op, const accumulation_shape& shape,
                         const std::int64_t* index, const float* x, float* y,
                         const executor& workers);
void accumulate_elements(accumulation op, const accumulation_shape& shape,
                         const std::int64_t* index, const double* x, double* y,
                         const executor& workers);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Sums of rows that have the same target on a CUDA device: gradients of embeddings and of maxima;
// cumulative sums.
//
// Claims: the bits of accumulate_rows() of numeric/detail/accumulation.hpp, because the rows of a
// target are added in the order of the list, by one thread for each column. No atomics.
// cumulate() has those of cumulative_sum() and cumulative_product() of numeric/reduction.hpp.
// Cost: every row is read once, and every target's row is read and written once; one thread goes
// along a whole line.
#pragma once

#include <cstdint>

#include <potl/cuda/queue.hpp>
#include <potl/numeric/reduction.hpp>

namespace potl::cuda {

/// Rows of `width` elements: out[t] += rows[order[p]] for p from starts[t] to starts[t + 1], in
/// that order, for each of `targets`. All in memory of the device; queued on `stream`. Throws
/// potl::exception (io) for an error of the device.
void add_rows(std::int64_t targets, std::int64_t width, const std::int64_t* starts,
              const std::int64_t* order, const float* rows, float* out, queue stream);
/// y[k] = x[0] + ... + x[k] along [outer][count][inner], or their product.
void cumulate(bool is_product, const numeric::reduction_shape& shape, const float* x, float* y,
              queue stream);

}  // namespace potl::cuda

// SPDX-License-Identifier: Apache-2.0
// Averages over windows, and their gradient. (Of maxima, numeric/detail/maxima.hpp; their gradient
// is accumulate_elements of numeric/detail/accumulation.hpp.)
//
// Claims: y = s / divisor with s the sum over the window from +0 in ascending (depth, height,
// width) order; a window without elements gives +0. Gradient: outputs in ascending order, each adds
// dy / divisor (one rounding) to the elements of its window; dx starts from +0.
// Same bits for any number of threads. Assumes round-to-nearest without flush-to-zero.
// Cost: a plane is one task at most; windows are summed directly, not by running sums.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// Window [begin, end) of one output along one dimension; `extent` is its part of the divisor.
struct pool_window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t extent = 0;
};

/// Windows of `kernel` elements every `stride`, beside `padding` zeros on both sides; with
/// `count_padding` those count in the divisor. `outputs` as the caller computed them (they may
/// reach beyond the padding, where nothing counts).
std::vector<pool_window> sliding_windows(std::int64_t inputs, std::int64_t outputs,
                                         std::int64_t kernel, std::int64_t stride,
                                         std::int64_t padding, bool count_padding);
/// Output j averages [floor(j inputs / outputs), ceil((j + 1) inputs / outputs)).
std::vector<pool_window> adaptive_windows(std::int64_t inputs, std::int64_t outputs);

/// x is [planes][input...][channels], y is [planes][windows...][channels]; lower dimensions use
/// leading 1s.
struct average_pool {
  std::int64_t planes = 0;
  std::int64_t channels = 1;  ///< that lie side by side
  std::array<std::int64_t, 3> input{1, 1, 1};
  std::array<std::vector<pool_window>, 3> windows;
  std::optional<std::int64_t> divisor;  ///< absent: the product of the window's extents
};

// Windows outside of the input throw potl::exception (usage).

void pool(const average_pool& of, const float* x, float* y, const executor& workers);
void pool(const average_pool& of, const double* x, double* y, const executor& workers);
void pool_gradient(const average_pool& of, const float* dy, float* dx, const executor& workers);
void pool_gradient(const average_pool& of, const double* dy, double* dx, const executor& workers);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Maxima over the windows of planes, and where they are.
//
// Claims: a window is read in ascending (row, column) order from -infinity and its first place; a
// value that is larger than what was found so far takes its place, and so does a NaN. These are the
// values and places of torch's own kernel, which branches where this one selects: a processor
// cannot guess which of four numbers is the largest.
// Same bits for any number of threads and each instruction set; nothing is rounded.
// Cost: the places that all planes share, 4 bytes for each output and element of a window.
#pragma once

#include <cstdint>
#include <vector>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// Elements begin, begin + step, ... before `end` along one dimension.
struct max_window {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t step = 1;
};

/// x is [planes][height][width], y and `places` are [planes][rows][columns].
struct max_windows {
  std::int64_t planes = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<max_window> rows;
  std::vector<max_window> columns;
};

/// `places` become numbers of elements of a plane.
///
/// Throws potl::exception (usage) for a window that is empty or outside of the input, and for a
/// plane of 2^31 elements or more.
void maxima(const max_windows& of, const float* x, float* y, std::int64_t* places,
            const executor& workers);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// How a gather with channels in the lanes reads the source, and how it is cut into blocks for the
// caches. The cut has no influence on a single bit.
#pragma once

#include <array>
#include <cstdint>

#include "block_grid.hpp"
#include "gather.hpp"

namespace potl::numeric::conv {

/// What the window is filled with: the source as it lies, where results are up to two places apart
/// along a line; else what gather.hpp says.
struct reading {
  gather from;
  std::array<std::int64_t, 3> move{1, 1, 1};  ///< places between neighbouring results

  explicit reading(const gather& what);

  /// Places that so many results of a dimension read.
  std::int64_t extent(std::size_t dimension, std::int64_t results) const {
    return (results - 1) * move[dimension] + 1 + from.axes[dimension].reach;
  }
  /// Of a block of results.
  block places(const block& here) const {
    return {here.image,        here.images,
            here.d0 * move[0], (here.d1 - 1) * move[0] + 1,
            here.h0 * move[1], (here.h1 - 1) * move[1] + 1};
  }
};

/// Blocks of whole images, or of lines of one slice.
block_grid line_blocks(const gather& what, const reading& read);

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// Blocks of results for the caches and the threads: whole images, or slices or lines of one.
#pragma once

#include <cstdint>

#include "gather.hpp"

namespace potl::numeric::conv {

/// Results of some whole images, or of some lines of one image.
struct block {
  std::int64_t image, images;
  std::int64_t d0, d1, h0, h1;
};

struct block_grid {
  explicit block_grid(const gather& what) noexcept
      : batch(what.batch),
        grid_d(what.axes[0].grid),
        grid_h(what.axes[1].grid),
        line(what.axes[2].grid) {}

  std::int64_t batch, grid_d, grid_h, line;
  std::int64_t images = 1, d = 1, h = 1;  ///< of the largest block

  std::int64_t count() const noexcept;
  block at(std::int64_t index) const noexcept;
  /// Of the largest block.
  std::int64_t results() const noexcept { return images * d * h * line; }
};

}  // namespace potl::numeric::conv

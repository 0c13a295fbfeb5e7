// SPDX-License-Identifier: Apache-2.0
#include "block_grid.hpp"

#include <algorithm>

#include "workers.hpp"

namespace potl::numeric::conv {

std::int64_t block_grid::count() const noexcept {
  return divide_up(batch, images) * divide_up(grid_d, d) * divide_up(grid_h, h);
}

block block_grid::at(std::int64_t index) const noexcept {
  const std::int64_t across_h = divide_up(grid_h, h), across_d = divide_up(grid_d, d);
  block one{};
  one.h0 = index % across_h * h;
  one.h1 = std::min(one.h0 + h, grid_h);
  one.d0 = index / across_h % across_d * d;
  one.d1 = std::min(one.d0 + d, grid_d);
  one.image = index / across_h / across_d * images;
  one.images = std::min(images, batch - one.image);
  return one;
}

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// How a gather is cut: the tile of results in registers, and blocks of results for the caches.
// None of this has an influence on a single bit.
#pragma once

#include <cstdint>

#include "block_grid.hpp"
#include "gather.hpp"

namespace potl::numeric::conv {

struct tile_shape {
  std::int64_t rows, vectors;
};

/// The tile with the least cost for that many rows of so many vectors.
tile_shape choose_shape(const rows_by_vectors& largest, std::int64_t rows, std::int64_t across);

struct block_plan : block_grid {
  block_plan(const gather& what, std::int64_t lanes, std::int64_t workers, std::int64_t row_panels);

  std::int64_t panels = 1;  ///< of rows, that one block of work computes
  bool direct = false;      ///< tiles read the window
  bool staged = false;      ///< results do not lie in the target one after the other
};

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// Where the vectors of a block of results lie in its window, line by line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "block_grid.hpp"
#include "tile.hpp"
#include "window.hpp"

namespace potl::numeric::conv {

struct panel_lines {
  std::vector<std::int64_t> vectors;  ///< direct: offset of each vector
  std::vector<segment> segments;      ///< packed: what each panel holds
  std::vector<std::size_t> panels;    ///< first segment of each, and the end
};

struct panel_shape {
  std::int64_t line;   ///< results of a line of the grid
  std::int64_t lanes;  ///< of a vector
  std::int64_t width;  ///< results of a panel
  bool direct;         ///< lines are whole vectors, which tiles read from the window
};

panel_lines lines_of(const block& here, const window& from, const panel_shape& shape);

}  // namespace potl::numeric::conv

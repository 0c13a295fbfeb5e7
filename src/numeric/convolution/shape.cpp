// SPDX-License-Identifier: Apache-2.0
#include "shape.hpp"

#include <algorithm>

#include "geometry.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {

namespace {

// Of one step along the depth: two multiply-adds or two loads per cycle, and a latency of four
// cycles.
double cycles(std::int64_t rows, std::int64_t vectors) {
  const auto sums = static_cast<double>(rows * vectors);
  const auto loads = static_cast<double>(rows + vectors + 1);
  return std::max({sums / 2, loads / 2, 4.0}) + 0.02 * loads;
}

}  // namespace

tile_shape choose_shape(const rows_by_vectors& largest, std::int64_t rows, std::int64_t across) {
  tile_shape best{1, 1};
  double least = 1e300;
  for (std::int64_t vectors = 1; vectors <= most_vectors; ++vectors) {
    const std::int64_t most = largest[static_cast<std::size_t>(vectors)];
    const std::int64_t panels = divide_up(rows, most), high = divide_up(rows, panels);
    // A few chains less hide each other's latency less well.
    const std::int64_t whole = across / vectors, rest = across % vectors;
    const double row = static_cast<double>(whole) * cycles(high, vectors) +
                       (rest == 0 ? 0.0 : 1.3 * cycles(high, rest));
    const double cost = row * static_cast<double>(panels);
    if (cost < least) {
      least = cost;
      best = {high, vectors};
    }
  }
  return best;
}

block_plan::block_plan(const gather& what, std::int64_t lanes, std::int64_t workers,
                       std::int64_t row_panels)
    : block_grid(what) {
  constexpr std::int64_t packed_results = 384, direct_window = 96 * 1024;
  const std::int64_t per_image = grid_d * grid_h * line;
  const std::int64_t reach =
      (line + what.axes[2].reach) * static_cast<std::int64_t>(what.axes[2].starts.size());
  direct = line % lanes == 0 && what.rows <= 64;
  // Lines of a direct block: as many as the window has room for.
  std::int64_t most = packed_results;
  if (direct)
    most = std::clamp(direct_window / std::max<std::int64_t>(1, what.channels * reach) * line,
                      4 * line, per_image);
  if (per_image <= most) {
    images = direct ? 1 : std::clamp<std::int64_t>(most / per_image, 1, batch);
    d = grid_d;
    h = grid_h;
  } else if (grid_h * line <= most) {
    d = most / (grid_h * line);
    h = grid_h;
  } else {
    h = std::clamp<std::int64_t>(most / line, 1, grid_h);
    h = divide_up(grid_h, divide_up(grid_h, h));
  }
  if (images > 1) images = divide_up(batch, divide_up(batch, images));
  staged = images > 1 || volume(what.write_step) != 1;
  panels = row_panels;
  const std::int64_t blocks = count() * what.groups;
  if (blocks < 8 * workers && blocks % workers != 0)
    panels = std::max<std::int64_t>(1, divide_up(row_panels, workers));
}

}  // namespace potl::numeric::conv

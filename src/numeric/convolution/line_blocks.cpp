// SPDX-License-Identifier: Apache-2.0
#include "line_blocks.hpp"

#include <algorithm>
#include <vector>

#include "window.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t most_window = 192 * 1024;  // floats that a block reads
constexpr std::int64_t most_source = 512 * 1024;  // the same, where nothing is copied
constexpr std::int64_t most_results = 1024;       // of a block

}  // namespace

reading::reading(const gather& what) : from(what) {
  if (what.axes[2].step > 2) return;
  for (std::size_t i = 0; i < 3; ++i) {
    axis& a = from.axes[i];
    move[i] = a.step;
    a = {(a.grid - 1) * a.step + 1, a.source, 1, {a.starts[0]}, 0};
  }
  for (phase& one : from.phases)
    for (tap& t : one.taps)
      for (std::size_t i = 0; i < 3; ++i) {
        const std::vector<std::int64_t>& starts = what.axes[i].starts;
        t.shift[i] = t.shift[i] * move[i] + starts[static_cast<std::size_t>(t.slot[i])] - starts[0];
        t.slot[i] = 0;
        from.axes[i].reach = std::max(from.axes[i].reach, t.shift[i]);
      }
}

block_grid line_blocks(const gather& what, const reading& read) {
  block_grid all(what);
  std::int64_t line = what.channels * (read.from.axes[2].grid + read.from.axes[2].reach);
  for (const axis& a : read.from.axes) line *= static_cast<std::int64_t>(a.starts.size());
  const std::int64_t image = line * read.extent(0, all.grid_d) * read.extent(1, all.grid_h);
  const std::int64_t results = all.grid_d * all.grid_h * all.line;
  const std::int64_t most = reads_own_place(read.from) ? most_source : most_window;
  if (image <= most && results <= most_results) {
    all.d = all.grid_d;
    all.h = all.grid_h;
    const std::int64_t images = std::min(most / image, most_results / results);
    const std::int64_t blocks = divide_up(all.batch, std::max<std::int64_t>(images, 1));
    all.images = divide_up(all.batch, blocks);
    return all;
  }
  const std::int64_t lines = most_window / (line * read.extent(0, 1));
  const std::int64_t room = (lines - read.extent(1, 1)) / read.move[1] + 1;
  const std::int64_t high =
      std::clamp<std::int64_t>(std::min(room, most_results / all.line), 1, all.grid_h);
  all.h = divide_up(all.grid_h, divide_up(all.grid_h, high));
  return all;
}

}  // namespace potl::numeric::conv

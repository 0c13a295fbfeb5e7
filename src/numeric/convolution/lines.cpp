// SPDX-License-Identifier: Apache-2.0
#include "lines.hpp"

#include <algorithm>

namespace potl::numeric::conv {
namespace {

void write_line(const gather& what, const kernels& with, std::int64_t beside, const float* from,
                std::int64_t distance, float* to) {
  const std::int64_t width = what.target_size[2], step = what.write_step[2];
  if (step == 2 && beside == 2) {
    with.interleave(from, from + distance, width / 2, to);
    if (width % 2 != 0) to[width - 1] = from[width / 2];
    return;
  }
  for (std::int64_t r = 0; r < beside; ++r, from += distance)
    for (std::int64_t i = 0; r + i * step < width; ++i) to[r + i * step] = from[i];
}

}  // namespace

std::int64_t phases_beside(const gather& what) {
  return std::min(what.write_step[2], what.target_size[2]);
}

void write_lines(const gather& what, const kernels& with, std::size_t first, const block& here,
                 const float* from, std::int64_t distance, float* plane) {
  const std::array<std::int64_t, 3>& size = what.target_size;
  const std::array<std::int64_t, 3>& start = what.phases[first].first;
  const std::int64_t beside = phases_beside(what);
  for (std::int64_t d = here.d0; d < here.d1; ++d)
    for (std::int64_t h = here.h0; h < here.h1; ++h, from += what.axes[2].grid) {
      const std::int64_t at_d = start[0] + d * what.write_step[0];
      const std::int64_t at_h = start[1] + h * what.write_step[1];
      // The grid may reach beyond the target.
      if (at_d >= size[0] || at_h >= size[1]) continue;
      write_line(what, with, beside, from, distance, plane + (at_d * size[1] + at_h) * size[2]);
    }
}

std::int64_t target_index(const gather& what, std::size_t p, const block& here, std::int64_t group,
                          std::int64_t row, std::int64_t result) {
  const std::int64_t line = what.axes[2].grid;
  const std::int64_t high = here.h1 - here.h0, plane = result / line;
  const std::array<std::int64_t, 3> at{here.d0 + plane / high % (here.d1 - here.d0),
                                       here.h0 + plane % high, result % line};
  const std::int64_t image = here.image + plane / high / (here.d1 - here.d0);
  std::int64_t index = (image * what.groups + group) * what.rows + row;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t place = what.phases[p].first[i] + at[i] * what.write_step[i];
    if (place >= what.target_size[i]) return -1;
    index = index * what.target_size[i] + place;
  }
  return index;
}

}  // namespace potl::numeric::conv

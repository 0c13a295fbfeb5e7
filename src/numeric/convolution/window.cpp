// SPDX-License-Identifier: Apache-2.0
#include "window.hpp"

#include <algorithm>

#include "geometry.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {

window::window(const gather& what, std::int64_t images, std::int64_t d, std::int64_t h)
    : what_(what), images_(images), is_source_(true) {
  for (std::size_t i = 0; i < 3; ++i) {
    const axis& a = what.axes[i];
    slots_[i] = static_cast<std::int64_t>(a.starts.size());
    is_source_ = is_source_ && a.step == 1 && a.reach == 0 && a.grid == a.source &&
                 slots_[i] == 1 && a.starts[0] == 0;
  }
  pitch_ = what.axes[2].grid + what.axes[2].reach;
  slice_ = (is_source_ ? what.axes[1].grid : h + what.axes[1].reach) * pitch_;
  slot_ = (is_source_ ? what.axes[0].grid : d + what.axes[0].reach) * slice_;
  channel_ = slots_[0] * slots_[1] * slots_[2] * slot_;
  image_ = (is_source_ ? what.groups : 1) * what.channels * channel_;
}

std::int64_t window::offset(std::int64_t channel, const tap& at) const noexcept {
  const std::int64_t slot = (at.slot[0] * slots_[1] + at.slot[1]) * slots_[2] + at.slot[2];
  return channel * channel_ + slot * slot_ + at.shift[0] * slice_ + at.shift[1] * pitch_ +
         at.shift[2];
}

// Lines of the source that are so far apart, each from index `start` on in steps, with zeros
// outside.
void window::fill_lines(const float* source, const line_counts& lines, std::int64_t distance,
                        std::int64_t start, const kernels& with, float* target) const {
  const axis& a = what_.axes[2];
  const std::int64_t low = std::clamp<std::int64_t>(divide_up(-start, a.step), 0, pitch_);
  const std::int64_t high =
      std::clamp<std::int64_t>(divide_up(a.source - start, a.step), low, pitch_);
  const float* from = source + start + low * a.step;
  if (a.step <= 2) {
    with.fill_plane({from, distance, a.step, lines.inside, low, high - low, pitch_, target,
                     lines.before, lines.after});
    return;
  }
  std::fill(target, target + (lines.before + lines.inside + lines.after) * pitch_, 0.0F);
  target += lines.before * pitch_ + low;
  for (std::int64_t line = 0; line < lines.inside; ++line, from += distance, target += pitch_)
    for (std::int64_t i = 0; i < high - low; ++i) target[i] = from[i * a.step];
}

const float* window::fill(const block& here, std::int64_t group, const kernels& with,
                          float* workspace) const {
  const auto& axes = what_.axes;
  const std::array<std::int64_t, 3> sizes{axes[0].source, axes[1].source, axes[2].source};
  const float* const first =
      what_.source + (here.image * what_.groups + group) * what_.channels * volume(sizes);
  if (is_source_) return first + line(0, here.d0, here.h0);
  for (std::int64_t plane = 0; plane < here.images * what_.channels; ++plane) {
    const std::int64_t image = plane / what_.channels, channel = plane % what_.channels;
    const float* const source =
        first + (image * what_.groups * what_.channels + channel) * volume(sizes);
    float* slot = workspace + plane * channel_;
    for (const std::int64_t start_d : axes[0].starts)
      for (const std::int64_t start_h : axes[1].starts)
        for (const std::int64_t start_w : axes[2].starts) {
          const std::int64_t lines = here.h1 - here.h0 + axes[1].reach;
          const std::int64_t first_h = here.h0 * axes[1].step + start_h, step_h = axes[1].step;
          const std::int64_t low = std::clamp<std::int64_t>(divide_up(-first_h, step_h), 0, lines);
          const std::int64_t high =
              std::clamp<std::int64_t>(divide_up(sizes[1] - first_h, step_h), low, lines);
          // In ascending order: what is written beyond a line is overwritten by the next.
          for (std::int64_t d = 0; d < here.d1 - here.d0 + axes[0].reach; ++d) {
            const std::int64_t at_d = (here.d0 + d) * axes[0].step + start_d;
            float* const to = slot + d * slice_;
            if (at_d < 0 || at_d >= sizes[0] || low == high)
              std::fill(to, to + lines * pitch_, 0.0F);
            else
              fill_lines(source + (at_d * sizes[1] + first_h + low * step_h) * sizes[2],
                         {low, high - low, lines - high}, step_h * sizes[2], start_w, with, to);
          }
          slot += slot_;
        }
  }
  return workspace;
}

}  // namespace potl::numeric::conv

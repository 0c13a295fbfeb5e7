// SPDX-License-Identifier: Apache-2.0
#include "window.hpp"

#include <algorithm>
#include <cstring>

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

// pitch_ elements of a line of the source, from index `start` on in steps, zeros outside.
void window::fill_line(const float* source, std::int64_t start, const kernels& with,
                       float* line) const {
  const axis& a = what_.axes[2];
  const std::int64_t low = std::clamp<std::int64_t>(divide_up(-start, a.step), 0, pitch_);
  const std::int64_t high =
      std::clamp<std::int64_t>(divide_up(a.source - start, a.step), low, pitch_);
  std::fill(line, line + low, 0.0F);
  const float* const from = source + start + low * a.step;
  if (high > low) {
    if (a.step == 1)
      std::memcpy(line + low, from, static_cast<std::size_t>(high - low) * sizeof(float));
    else if (a.step == 2)
      with.every_second(from, high - low, line + low);
    else
      for (std::int64_t i = 0; i < high - low; ++i) line[low + i] = from[i * a.step];
  }
  std::fill(line + high, line + pitch_, 0.0F);
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
          for (std::int64_t d = 0; d < here.d1 - here.d0 + axes[0].reach; ++d)
            for (std::int64_t h = 0; h < here.h1 - here.h0 + axes[1].reach; ++h) {
              const std::int64_t at_d = (here.d0 + d) * axes[0].step + start_d;
              const std::int64_t at_h = (here.h0 + h) * axes[1].step + start_h;
              float* const line = slot + d * slice_ + h * pitch_;
              if (at_d >= 0 && at_d < sizes[0] && at_h >= 0 && at_h < sizes[1])
                fill_line(source + (at_d * sizes[1] + at_h) * sizes[2], start_w, with, line);
              else
                std::fill(line, line + pitch_, 0.0F);
            }
          slot += slot_;
        }
  }
  return workspace;
}

}  // namespace potl::numeric::conv

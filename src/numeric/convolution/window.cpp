// SPDX-License-Identifier: Apache-2.0
#include "window.hpp"

#include <algorithm>

#include "geometry.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {

void fill_lines(const plane_task& task, const kernels& with) {
  if (task.step <= 2) return with.fill_plane(task);
  std::fill(task.target, task.target + (task.before + task.lines + task.after) * task.pitch, 0.0F);
  float* target = task.target + task.before * task.pitch + task.low;
  const float* from = task.source;
  for (std::int64_t line = 0; line < task.lines; ++line) {
    for (std::int64_t i = 0; i < task.count; ++i) target[i] = from[i * task.step];
    from += task.source_line;
    target += task.pitch;
  }
}

bool reads_own_place(const gather& what) noexcept {
  return std::all_of(what.axes.begin(), what.axes.end(), [](const axis& a) {
    return a.step == 1 && a.reach == 0 && a.grid == a.source && a.starts.size() == 1 &&
           a.starts[0] == 0;
  });
}

window::window(const gather& what, std::int64_t images, std::int64_t d, std::int64_t h,
               bool whole_vectors)
    : what_(what), images_(images), is_source_(!whole_vectors && reads_own_place(what)) {
  for (std::size_t i = 0; i < 3; ++i)
    slots_[i] = static_cast<std::int64_t>(what.axes[i].starts.size());
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

std::vector<std::int64_t> window::offsets(const phase& of) const {
  std::vector<std::int64_t> all;
  for (std::int64_t c = 0; c < what_.channels; ++c)
    for (const tap& t : of.taps) all.push_back(offset(c, t));
  return all;
}

std::vector<std::int64_t> window::places(const block_grid& largest) const {
  std::vector<std::int64_t> all;
  all.reserve(static_cast<std::size_t>(largest.results()));
  for (std::int64_t n = 0; n < largest.images; ++n)
    for (std::int64_t d = 0; d < largest.d; ++d)
      for (std::int64_t h = 0; h < largest.h; ++h)
        for (std::int64_t i = 0; i < largest.line; ++i) all.push_back(line(n, d, h) + i);
  return all;
}

// How the lines of one slot are filled, in each slice of each plane.
window::slot_lines window::lines_of(const block& here, std::int64_t start_h,
                                    std::int64_t start_w) const {
  const axis &h = what_.axes[1], &w = what_.axes[2];
  const std::int64_t lines = here.h1 - here.h0 + h.reach, first = here.h0 * h.step + start_h;
  const std::int64_t top = std::clamp<std::int64_t>(divide_up(-first, h.step), 0, lines);
  const std::int64_t bottom =
      std::clamp<std::int64_t>(divide_up(h.source - first, h.step), top, lines);
  const std::int64_t low = std::clamp<std::int64_t>(divide_up(-start_w, w.step), 0, pitch_);
  const std::int64_t high =
      std::clamp<std::int64_t>(divide_up(w.source - start_w, w.step), low, pitch_);
  slot_lines all;
  all.from = (first + top * h.step) * w.source + start_w + low * w.step;
  all.task = {nullptr, h.step * w.source, w.step, bottom - top,  low, high - low,
              pitch_,  nullptr,           top,    lines - bottom};
  return all;
}

const float* window::fill(const block& here, std::int64_t group, const kernels& with,
                          float* workspace) const {
  const auto& axes = what_.axes;
  const std::int64_t slice = axes[1].source * axes[2].source, plane = axes[0].source * slice;
  const float* source = what_.source + (here.image * what_.groups + group) * what_.channels * plane;
  if (is_source_) return source + line(0, here.d0, here.h0);
  std::vector<slot_lines> slots;
  for (const std::int64_t start_d : axes[0].starts)
    for (const std::int64_t start_h : axes[1].starts)
      for (const std::int64_t start_w : axes[2].starts) {
        slots.push_back(lines_of(here, start_h, start_w));
        slots.back().start_d = start_d;
      }
  const std::int64_t lines = here.h1 - here.h0 + axes[1].reach;
  // In ascending order: what is written beyond a line is overwritten by the next.
  float* to = workspace;
  for (std::int64_t image = 0; image < here.images; ++image) {
    for (std::int64_t channel = 0; channel < what_.channels; ++channel, source += plane)
      for (const slot_lines& slot : slots) {
        plane_task task = slot.task;
        for (std::int64_t d = 0; d < here.d1 - here.d0 + axes[0].reach; ++d) {
          const std::int64_t at_d = (here.d0 + d) * axes[0].step + slot.start_d;
          task.target = to + d * slice_;
          task.source = source + at_d * slice + slot.from;
          if (at_d < 0 || at_d >= axes[0].source || task.lines == 0)
            std::fill(task.target, task.target + lines * pitch_, 0.0F);
          else
            fill_lines(task, with);
        }
        to += slot_;
      }
    source += (what_.groups - 1) * what_.channels * plane;
  }
  return workspace;
}

}  // namespace potl::numeric::conv

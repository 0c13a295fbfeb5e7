// SPDX-License-Identifier: Apache-2.0
#include "pixels.hpp"

#include <algorithm>

#include "geometry.hpp"
#include "window.hpp"

namespace potl::numeric::conv {

pixels::pixels(const convolution& g, std::int64_t most)
    : g_(g), out_(g.output()), pointwise_(is_pointwise(g)) {
  for (std::size_t i = 0; i < 3; ++i) {
    step_[i] = g.kernel[i] == 1 ? g.stride[i] : 1;
    move_[i] = g.kernel[i] == 1 ? 1 : g.stride[i];
    taps_[i] = (g.kernel[i] - 1) * g.dilation[i];
  }
  run_taps_ = g.dilation[2] == 1 ? g.kernel[2] : 1;
  const std::int64_t per_image = volume(out_);
  images_ = std::min(g.batch, (most - 2) / per_image + 2);
  // As many lines as can be touched, in the worst place.
  const std::int64_t touched = (most - 2) / out_[2] + 2;
  const std::int64_t d = std::min(out_[0], (touched - 2 + out_[1]) / out_[1] + 1);
  const std::int64_t h = d > 1 ? out_[1] : std::min(out_[1], touched);
  width_ = (out_[2] - 1) * move_[2] + taps_[2] + 1;
  height_ = (h - 1) * move_[1] + taps_[1] + 1;
  image_ = ((d - 1) * move_[0] + taps_[0] + 1) * height_ * width_;
  if (pointwise_) {
    images_ = 1;
    image_ = most;
  }
}

channel_block pixels::block(std::int64_t first, std::int64_t count, std::int64_t lanes) const {
  channel_block all{first, count, {}, lanes, 0};
  if (pointwise_) {
    for (std::int64_t lane = 0; lane < count; lane += lanes) all.vectors.push_back(lane * image_);
    return all;
  }
  for (std::int64_t d = 0; d < g_.kernel[0]; ++d)
    for (std::int64_t h = 0; h < g_.kernel[1]; ++h)
      for (std::int64_t w = 0; w < g_.kernel[2]; w += run_taps_) {
        const std::int64_t at = tap_offset(d, h, w);
        for (std::int64_t lane = 0; lane < run_taps_ * count; lane += lanes)
          all.vectors.push_back(at * count + lane);
      }
  return all;
}

pixels::lines pixels::lines_of(std::int64_t first, std::int64_t last) const noexcept {
  const std::int64_t low = first / out_[2], high = last / out_[2];
  lines found{low / out_[1], high / out_[1] + 1, low % out_[1], high % out_[1] + 1};
  if (found.d1 - found.d0 > 1) {
    found.h0 = 0;
    found.h1 = out_[1];
  }
  return found;
}

// One line of all channels; `source` is that of the first channel.
void pixels::fill_line(const float* source, std::int64_t channels, const kernels& with,
                       float* gathered, float* target) const {
  const std::int64_t start = -g_.padding[2], size = g_.input[2], step = step_[2];
  const std::int64_t low = std::clamp<std::int64_t>(divide_up(-start, step), 0, width_);
  const std::int64_t high = std::clamp<std::int64_t>(divide_up(size - start, step), low, width_);
  std::fill(target, target + low * channels, 0.0F);
  std::fill(target + high * channels, target + width_ * channels, 0.0F);
  const float* const from = source + start + low * step;
  const std::int64_t plane = volume(g_.input);
  if (high == low) return;
  if (step == 1) {
    with.transpose(from, plane, channels, high - low, target + low * channels, channels);
    return;
  }
  for (std::int64_t c = 0; c < channels; c += gather_lines) {
    const std::int64_t some = std::min(gather_lines, channels - c);
    for (std::int64_t i = 0; i < some; ++i) {
      const float* const line = from + (c + i) * plane;
      float* const to = gathered + i * width_;
      if (step == 2)
        with.every_second(line, high - low, to);
      else
        for (std::int64_t w = 0; w < high - low; ++w) to[w] = line[w * step];
    }
    with.transpose(gathered, width_, some, high - low, target + low * channels + c, channels);
  }
}

// Offsets of the results [p, stop) of an image that begins at `at`, in places of `each` elements.
void pixels::place(std::int64_t p, std::int64_t stop, const lines& used, std::int64_t at,
                   std::int64_t each, std::int64_t* offsets) const {
  while (p < stop) {
    const std::int64_t line = p / out_[2], first = p % out_[2];
    const std::int64_t d = line / out_[1] - used.d0, h = line % out_[1] - used.h0;
    const std::int64_t pixel = (d * move_[0] * height_ + h * move_[1]) * width_ + first * move_[2];
    std::int64_t here = at + pixel * each;
    for (const std::int64_t end = std::min(stop, p + out_[2] - first); p < end; ++p) {
      *offsets++ = here;
      here += move_[2] * each;
    }
  }
}

void pixels::fill_planes(const float* x, std::int64_t group, std::int64_t begin, std::int64_t end,
                         const kernels& with, float* workspace, std::int64_t* offsets) const {
  const std::int64_t per_image = volume(out_), channels = g_.in_channels / g_.groups;
  const std::int64_t low = std::clamp<std::int64_t>(divide_up(g_.padding[2], step_[2]), 0, width_);
  const std::int64_t high =
      std::clamp<std::int64_t>(divide_up(g_.input[2] + g_.padding[2], step_[2]), low, width_);
  // In ascending order: what is written beyond a line is overwritten by the next.
  for (std::int64_t c = 0; c < channels; ++c) {
    float* image = workspace + c * per_channel();
    for (std::int64_t p = begin; p < end; image += image_) {
      const std::int64_t n = p / per_image, stop = std::min(end, (n + 1) * per_image);
      const lines used = lines_of(p - n * per_image, stop - 1 - n * per_image);
      const float* const source =
          x + (n * g_.in_channels + group * channels + c) * volume(g_.input);
      const std::int64_t all = (used.h1 - 1 - used.h0) * move_[1] + taps_[1] + 1;
      const std::int64_t first = used.h0 * g_.stride[1] - g_.padding[1];
      const std::int64_t top = std::clamp<std::int64_t>(divide_up(-first, step_[1]), 0, all);
      const std::int64_t bottom =
          std::clamp<std::int64_t>(divide_up(g_.input[1] - first, step_[1]), top, all);
      for (std::int64_t d = 0; d <= (used.d1 - 1 - used.d0) * move_[0] + taps_[0]; ++d) {
        const std::int64_t at_d = used.d0 * g_.stride[0] + d * step_[0] - g_.padding[0];
        float* const plane = image + d * height_ * width_;
        if (at_d < 0 || at_d >= g_.input[0] || bottom == top || high == low) {
          std::fill(plane, plane + all * width_, 0.0F);
          continue;
        }
        const std::int64_t at = (at_d * g_.input[1] + first + top * step_[1]) * g_.input[2];
        fill_lines({source + at - g_.padding[2] + low * step_[2], step_[1] * g_.input[2], step_[2],
                    bottom - top, low, high - low, width_, plane, top, all - bottom},
                   with);
      }
      if (c == 0)
        place(p - n * per_image, stop - n * per_image, used, image - workspace, 1,
              offsets + (p - begin));
      p = stop;
    }
  }
}

void pixels::fill(const float* x, std::int64_t group, const channel_block& channels,
                  std::int64_t begin, std::int64_t end, const kernels& with, float* workspace,
                  std::int64_t* offsets) const {
  const std::int64_t per_image = volume(out_), count = channels.count;
  float* const gathered = workspace + images_ * image_ * count;
  float* image = workspace;
  for (std::int64_t p = begin; p < end; image += image_ * count) {
    const std::int64_t n = p / per_image, stop = std::min(end, (n + 1) * per_image);
    if (pointwise_) {
      const std::int64_t channel =
          n * g_.in_channels + group * (g_.in_channels / g_.groups) + channels.first;
      for (std::int64_t lane = 0; lane < count; lane += channels.lanes)
        with.transpose(x + (channel + lane) * per_image + p - n * per_image, per_image,
                       std::min(channels.lanes, count - lane), stop - p,
                       workspace + lane * image_ + (p - begin) * channels.lanes, channels.lanes);
      for (; p < stop; ++p) offsets[p - begin] = (p - begin) * channels.lanes;
      continue;
    }
    const lines used = lines_of(p - n * per_image, stop - 1 - n * per_image);
    const float* const source =
        x + (n * g_.in_channels + group * (g_.in_channels / g_.groups) + channels.first) *
                volume(g_.input);
    for (std::int64_t d = 0; d <= (used.d1 - 1 - used.d0) * move_[0] + taps_[0]; ++d)
      for (std::int64_t h = 0; h <= (used.h1 - 1 - used.h0) * move_[1] + taps_[1]; ++h) {
        const std::int64_t at_d = used.d0 * g_.stride[0] + d * step_[0] - g_.padding[0];
        const std::int64_t at_h = used.h0 * g_.stride[1] + h * step_[1] - g_.padding[1];
        float* const line = image + (d * height_ + h) * width_ * count;
        if (at_d >= 0 && at_d < g_.input[0] && at_h >= 0 && at_h < g_.input[1])
          fill_line(source + (at_d * g_.input[1] + at_h) * g_.input[2], count, with, gathered,
                    line);
        else
          std::fill(line, line + width_ * count, 0.0F);
      }
    place(p - n * per_image, stop - n * per_image, used, image - workspace, count,
          offsets + (p - begin));
    p = stop;
  }
}

}  // namespace potl::numeric::conv

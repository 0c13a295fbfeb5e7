// SPDX-License-Identifier: Apache-2.0
#include "channels.hpp"

#include <algorithm>

#include "geometry.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {

void copy_line(const float* line, std::int64_t size, std::int64_t from, std::int64_t step,
               std::int64_t count, float* to) {
  const std::int64_t low = std::clamp<std::int64_t>(divide_up(-from, step), 0, count);
  const std::int64_t high = std::clamp<std::int64_t>(divide_up(size - from, step), low, count);
  std::fill(to, to + low, 0.0F);
  if (step == 1) {
    std::copy(line + from + low, line + from + high, to + low);
  } else {
    for (std::int64_t i = low; i < high; ++i) to[i] = line[from + i * step];
  }
  std::fill(to + high, to + count, 0.0F);
}

void copy_channel(const convolution& g, const float* dy, std::int64_t channel, float* to) {
  const std::int64_t per_image = volume(g.output());
  for (std::int64_t n = 0; n < g.batch; ++n, to += per_image)
    std::copy_n(dy + (n * g.out_channels + channel) * per_image, per_image, to);
}

void see_channel(const convolution& g, const float* x, std::int64_t channel, std::int64_t tap,
                 float* to) {
  const auto out = g.output();
  const std::array<std::int64_t, 3> shift{
      tap / g.kernel[2] / g.kernel[1] * g.dilation[0] - g.padding[0],
      tap / g.kernel[2] % g.kernel[1] * g.dilation[1] - g.padding[1],
      tap % g.kernel[2] * g.dilation[2] - g.padding[2]};
  for (std::int64_t n = 0; n < g.batch; ++n) {
    const float* const image = x + (n * g.in_channels + channel) * volume(g.input);
    for (std::int64_t d = 0; d < out[0]; ++d)
      for (std::int64_t h = 0; h < out[1]; ++h, to += out[2]) {
        const std::int64_t at_d = d * g.stride[0] + shift[0];
        const std::int64_t at_h = h * g.stride[1] + shift[1];
        if (at_d >= 0 && at_d < g.input[0] && at_h >= 0 && at_h < g.input[1])
          copy_line(image + (at_d * g.input[1] + at_h) * g.input[2], g.input[2], shift[2],
                    g.stride[2], out[2], to);
        else
          std::fill(to, to + out[2], 0.0F);
      }
  }
}

element_operands channel_operands(const convolution& g, const float* x, const float* dy) {
  return [&g, x, dy](std::uint64_t index, std::vector<float>& a, std::vector<float>& b) {
    const std::int64_t taps = volume(g.kernel), channels = g.in_channels / g.groups;
    const auto at = static_cast<std::int64_t>(index);
    const std::int64_t row = at / taps / channels, group = row / (g.out_channels / g.groups);
    const auto terms = static_cast<std::size_t>(g.batch * volume(g.output()));
    a.resize(terms);
    b.resize(terms);
    copy_channel(g, dy, row, a.data());
    see_channel(g, x, group * channels + at / taps % channels, at % taps, b.data());
  };
}

}  // namespace potl::numeric::conv

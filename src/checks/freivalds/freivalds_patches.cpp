// SPDX-License-Identifier: Apache-2.0
#include "freivalds_patches.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <potl/numeric/detail/projection.hpp>

namespace potl::checks::freivalds_detail {

patches::patches(const numeric::convolution& g, reading what) {
  const auto output = g.output();
  const bool inputs = what == reading::inputs;
  result_ = inputs ? output : g.input;
  source_ = inputs ? g.input : output;
  for (std::size_t i = 0; i < 3; ++i) {
    taps_ *= g.kernel[i];
    positions_ *= result_[i];
    const std::int64_t stride = g.stride[i];
    const auto above = [stride](std::int64_t x) { return x <= 0 ? 0 : (x + stride - 1) / stride; };
    for (std::int64_t tap = 0; tap < g.kernel[i]; ++tap) {
      // Output p reads input p * stride + offset.
      const std::int64_t offset = tap * g.dilation[i] - g.padding[i];
      const std::int64_t first = above(-offset);
      const std::int64_t count = std::min(output[i], above(g.input[i] - offset)) - first;
      const std::int64_t at = first * stride + offset;
      views_[i].push_back(inputs ? view{first, 1, at, stride, count}
                                 : view{at, stride, first, 1, count});
    }
  }
  if (g.stride == std::array<std::int64_t, 3>{1, 1, 1}) pad(g, inputs);
}

void patches::pad(const numeric::convolution& g, bool inputs) {
  padded_.offsets.assign(1, 0);
  for (std::size_t i = 0; i < 3; ++i) {
    // Position p of the result reads position p + shift of the source.
    std::vector<std::int64_t> shifts;
    for (std::int64_t tap = 0; tap < g.kernel[i]; ++tap) {
      const std::int64_t offset = tap * g.dilation[i] - g.padding[i];
      shifts.push_back(inputs ? offset : -offset);
    }
    const auto [least, most] = std::minmax_element(shifts.begin(), shifts.end());
    const std::int64_t begin = std::min(*least, std::int64_t{0});
    padded_.size[i] = std::max(result_[i] + *most, source_[i]) - begin;
    padded_.channel_at[i] = -begin;
    std::vector<std::int64_t> all;
    for (const std::int64_t before : padded_.offsets) {
      for (const std::int64_t shift : shifts)
        all.push_back(before * padded_.size[i] + shift - begin);
    }
    padded_.offsets = std::move(all);
  }
}

const patches::view& patches::of(std::size_t dimension, std::int64_t tap) const noexcept {
  for (std::size_t i = 2; i > dimension; --i) tap /= static_cast<std::int64_t>(views_[i].size());
  return views_[dimension][static_cast<std::size_t>(tap) % views_[dimension].size()];
}

template <class Real, class Put>
void patches::each(const Real* channel, std::int64_t tap, Real* to, Put put) const {
  const view &deep = of(0, tap), &high = of(1, tap), &wide = of(2, tap);
  for (std::int64_t d = 0; d < deep.count; ++d) {
    for (std::int64_t h = 0; h < high.count; ++h) {
      const Real* from =
          channel +
          ((deep.first + d * deep.step) * source_[1] + high.first + h * high.step) * source_[2] +
          wide.first;
      Real* out =
          to +
          ((deep.begin + d * deep.every) * result_[1] + high.begin + h * high.every) * result_[2] +
          wide.begin;
      if (wide.every == 1 && wide.step == 1) {
        for (std::int64_t w = 0; w < wide.count; ++w) put(out[w], from[w]);
      } else {
        for (std::int64_t w = 0; w < wide.count; ++w) put(out[w * wide.every], from[w * wide.step]);
      }
    }
  }
}

void patches::write(const float* channel, std::int64_t tap, float* to) const {
  each(channel, tap, to, [](float& out, float in) { out = in; });
}

void patches::add(const double* channel, const double* factors, double* to) const {
  if (padded_.offsets.empty()) {
    for (std::int64_t tap = 0; tap < taps_; ++tap) {
      const double factor = factors[tap];
      each(channel, tap, to, [factor](double& out, double in) { out += factor * in; });
    }
    return;
  }
  const auto& [size, at, offsets] = padded_;
  std::vector<double> all(static_cast<std::size_t>(size[0] * size[1] * size[2]));
  for (std::int64_t d = 0; d < source_[0]; ++d) {
    for (std::int64_t h = 0; h < source_[1]; ++h) {
      const std::int64_t place = ((d + at[0]) * size[1] + h + at[1]) * size[2] + at[2];
      std::copy_n(channel + (d * source_[1] + h) * source_[2], source_[2], all.data() + place);
    }
  }
  for (std::int64_t d = 0; d < result_[0]; ++d) {
    const double* const from = all.data() + d * size[1] * size[2];
    numeric::add_shifted({from, result_[1], result_[2], size[2], 1}, offsets, factors,
                         {to + d * result_[1] * result_[2], result_[1], result_[2], result_[2], 1});
  }
}

}  // namespace potl::checks::freivalds_detail

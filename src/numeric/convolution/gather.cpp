// SPDX-License-Identifier: Apache-2.0
#include "gather.hpp"

#include <algorithm>
#include <utility>

#include "geometry.hpp"

namespace potl::numeric::conv {
namespace {

// One tap of one dimension: its index in the kernel, and what it reads for grid position 0.
struct read {
  std::int64_t tap;
  std::int64_t first;
};

std::int64_t modulo(std::int64_t a, std::int64_t b) { return (a % b + b) % b; }

// Gives each phase of the step that occurs a slot, which starts at its first read.
void place(axis& a, const std::vector<read>& reads) {
  std::vector<std::int64_t> firsts;
  for (const read& one : reads) firsts.push_back(one.first);
  std::sort(firsts.begin(), firsts.end());
  for (const std::int64_t first : firsts) {
    const auto same = [&](std::int64_t start) { return modulo(first - start, a.step) == 0; };
    const auto slot = std::find_if(a.starts.begin(), a.starts.end(), same);
    if (slot == a.starts.end())
      a.starts.push_back(first);
    else
      a.reach = std::max(a.reach, (first - *slot) / a.step);
  }
}

void locate(const axis& a, std::int64_t first, std::int64_t& slot, std::int64_t& shift) {
  for (std::size_t i = 0; i < a.starts.size(); ++i) {
    if (modulo(first - a.starts[i], a.step) != 0) continue;
    slot = static_cast<std::int64_t>(i);
    shift = (first - a.starts[i]) / a.step;
  }
}

// All taps that are in the lists of the three dimensions, in the order of the kernel.
std::vector<tap> taps_of(const std::array<axis, 3>& axes, const std::array<std::int64_t, 3>& kernel,
                         const std::array<const std::vector<read>*, 3>& reads) {
  std::vector<tap> taps;
  for (const read& d : *reads[0])
    for (const read& h : *reads[1])
      for (const read& w : *reads[2]) {
        tap one;
        one.weight = (d.tap * kernel[1] + h.tap) * kernel[2] + w.tap;
        const std::array<std::int64_t, 3> firsts{d.first, h.first, w.first};
        for (std::size_t i = 0; i < 3; ++i) locate(axes[i], firsts[i], one.slot[i], one.shift[i]);
        taps.push_back(one);
      }
  return taps;
}

}  // namespace

gather forward_gather(const convolution& g, const float* x, const float* w, float* y) {
  gather all;
  all.batch = g.batch;
  all.groups = g.groups;
  all.channels = g.in_channels / g.groups;
  all.rows = g.out_channels / g.groups;
  all.target_size = g.output();
  std::array<std::vector<read>, 3> reads;
  for (std::size_t i = 0; i < 3; ++i) {
    all.axes[i] = {all.target_size[i], g.input[i], g.stride[i], {}, 0};
    for (std::int64_t t = 0; t < g.kernel[i]; ++t)
      reads[i].push_back({t, t * g.dilation[i] - g.padding[i]});
    place(all.axes[i], reads[i]);
  }
  all.phases.push_back({{0, 0, 0}, taps_of(all.axes, g.kernel, {&reads[0], &reads[1], &reads[2]})});
  all.weight_channel = volume(g.kernel);
  all.weight_row = all.channels * all.weight_channel;
  all.weight_group = all.rows * all.weight_row;
  all.weights = w;
  all.source = x;
  all.target = y;
  return all;
}

gather input_gradient_gather(const convolution& g, const float* dy, const float* w, float* dx) {
  gather all;
  all.batch = g.batch;
  all.groups = g.groups;
  all.channels = g.out_channels / g.groups;
  all.rows = g.in_channels / g.groups;
  all.target_size = g.input;
  all.write_step = g.stride;
  const auto out = g.output();
  std::array<std::vector<std::vector<read>>, 3> reads;  // per dimension and phase
  for (std::size_t i = 0; i < 3; ++i) {
    all.axes[i] = {(g.input[i] + g.stride[i] - 1) / g.stride[i], out[i], 1, {}, 0};
    std::vector<read> every;
    for (std::int64_t r = 0; r < std::min(g.stride[i], g.input[i]); ++r) {
      std::vector<read> here;
      for (std::int64_t t = 0; t < g.kernel[i]; ++t) {
        const std::int64_t moved = r + g.padding[i] - t * g.dilation[i];
        if (modulo(moved, g.stride[i]) == 0) here.push_back({t, moved / g.stride[i]});
      }
      every.insert(every.end(), here.begin(), here.end());
      reads[i].push_back(std::move(here));
    }
    place(all.axes[i], every);
  }
  for (std::size_t d = 0; d < reads[0].size(); ++d)
    for (std::size_t h = 0; h < reads[1].size(); ++h)
      for (std::size_t v = 0; v < reads[2].size(); ++v)
        all.phases.push_back(
            {{static_cast<std::int64_t>(d), static_cast<std::int64_t>(h),
              static_cast<std::int64_t>(v)},
             taps_of(all.axes, g.kernel, {&reads[0][d], &reads[1][h], &reads[2][v]})});
  all.weight_row = volume(g.kernel);
  all.weight_channel = all.rows * all.weight_row;
  all.weight_group = all.channels * all.weight_channel;
  all.weights = w;
  all.source = dy;
  all.target = dx;
  return all;
}

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
#include "few_channels.hpp"

#include <algorithm>
#include <vector>

#include "chunk_sums.hpp"
#include "geometry.hpp"
#include "pixels.hpp"

namespace potl::numeric::conv {
namespace {

class few_channels_run {
 public:
  few_channels_run(const convolution& g, const float* x, const float* dy, const kernels& with)
      : g_(g),
        x_(x),
        dy_(dy),
        with_(with),
        lanes_(with.single.lanes),
        rows_(g.out_channels / g.groups),
        width_(std::min(most_line_vectors * lanes_, divide_up(rows_, lanes_) * lanes_)),
        panels_(divide_up(rows_, width_)),
        per_image_(volume(g.output())),
        positions_(g.batch * per_image_),
        pixels_(g, std::min(chunk_positions, positions_)),
        run_(g.kernel[2] == 3 && g.dilation[2] == 1 ? 3 : 1) {
    for (std::int64_t c = 0; c < g.in_channels / g.groups; ++c)
      for (std::int64_t tap = 0; tap < volume(g.kernel); ++tap)
        places_.push_back(c * pixels_.per_channel() + pixels_.tap_offset(tap));
    taps_ = static_cast<std::int64_t>(places_.size());
  }

  void run(float* dw, const executor& threads) {
    const std::int64_t window = divide_up(pixels_.size(g_.in_channels / g_.groups), 16) * 16;
    sum_chunks(
        {positions_, g_.groups, panels_ * taps_ * width_, window + chunk_positions * width_ + 64},
        with_, threads,
        [&](std::int64_t group, std::int64_t begin, std::int64_t end, float* memory, float* sums) {
          one_chunk(group, begin, end, memory, memory + window, sums);
        },
        [&](std::int64_t group, const float* sums) { write(group, sums, dw); });
  }

 private:
  // sums[(panel * taps_ + tap) * width_ + row]
  void one_chunk(std::int64_t group, std::int64_t begin, std::int64_t end, float* window,
                 float* left, float* sums) const {
    std::int64_t offsets[chunk_positions];
    pixels_.fill_planes(x_, group, begin, end, with_, window, offsets);
    line_task task{};
    task.depth = end - begin;
    task.a = left;
    task.a_row = width_;
    task.b = window;
    task.offsets = offsets;
    task.c_row = width_;
    const std::int64_t runs = taps_ / run_, parts = divide_up(runs, with_.line.rows / run_);
    const auto& tiles = run_ == 1 ? with_.line.scattered : with_.line.by_three;
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      const std::int64_t rows = rows_of(panel);
      // Lanes without a row compute with whatever is there: let it be numbers.
      if (rows < width_) std::fill(left, left + task.depth * width_, 0.0F);
      pack(group * rows_ + panel * width_, rows, begin, end, left);
      const auto vectors = static_cast<std::size_t>(divide_up(rows, lanes_));
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t first = runs * part / parts * run_;
        const std::int64_t last = runs * (part + 1) / parts * run_;
        task.places = places_.data() + first;
        task.c = sums + (panel * taps_ + first) * width_;
        tiles[vectors][last - first](task);
      }
    }
  }

  std::int64_t rows_of(std::int64_t panel) const {
    return std::min(width_, rows_ - panel * width_);
  }

  // left[position * width_ + row] = dy of some output channels.
  void pack(std::int64_t first, std::int64_t rows, std::int64_t begin, std::int64_t end,
            float* left) const {
    for (std::int64_t p = begin; p < end;) {
      const std::int64_t n = p / per_image_, stop = std::min(end, (n + 1) * per_image_);
      with_.transpose(dy_ + (n * g_.out_channels + first) * per_image_ + p - n * per_image_,
                      per_image_, rows, stop - p, left + (p - begin) * width_, width_);
      p = stop;
    }
  }

  void write(std::int64_t group, const float* sums, float* dw) const {
    for (std::int64_t panel = 0; panel < panels_; ++panel)
      with_.transpose(sums + panel * taps_ * width_, width_, taps_, rows_of(panel),
                      dw + (group * rows_ + panel * width_) * taps_, taps_);
  }

  const convolution& g_;
  const float* x_;
  const float* dy_;
  const kernels& with_;
  std::int64_t lanes_, rows_, width_, panels_, per_image_, positions_;
  pixels pixels_;
  std::vector<std::int64_t> places_;  // of the taps of all channels
  std::int64_t taps_ = 0;
  std::int64_t run_;  // taps that lie side by side
};

}  // namespace

bool has_few_channels(const convolution& g, const kernels& with) {
  const std::int64_t lanes = with.single.lanes, rows = g.out_channels / g.groups;
  const std::int64_t channels = g.in_channels / g.groups;
  return lanes > 1 && channels <= 4 && channels * volume(g.kernel) >= 8 && !is_pointwise(g) &&
         8 * rows >= 7 * (divide_up(rows, lanes) * lanes);
}

void few_channels_weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                                  const kernels& with, const executor& threads) {
  few_channels_run(g, x, dy, with).run(dw, threads);
}

}  // namespace potl::numeric::conv

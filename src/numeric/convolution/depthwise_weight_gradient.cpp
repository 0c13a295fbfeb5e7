// SPDX-License-Identifier: Apache-2.0
// Weight gradients where every input channel is a group: lanes are channels, each tap has a sum of
// its own, and chunks of 512 positions are independent sums that are added in order.
#include <algorithm>
#include <vector>

#include "chunk_sums.hpp"
#include "depthwise.hpp"
#include "geometry.hpp"
#include "pixels.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

convolution ungrouped(convolution g) {
  g.groups = 1;
  return g;
}

class depthwise_run {
 public:
  depthwise_run(const convolution& g, const float* x, const float* dy, const kernels& with,
                const executor& threads)
      : g_(ungrouped(g)),
        x_(x),
        dy_(dy),
        with_(with),
        threads_(threads),
        lanes_(with.single.lanes),
        rows_(g.out_channels / g.in_channels),
        taps_(volume(g.kernel)),
        per_image_(volume(g.output())),
        positions_(g.batch * per_image_),
        pixels_(g_, std::min(chunk_positions, positions_)) {
    for (std::int64_t first = 0; first < g.in_channels; first += lanes_)
      blocks_.push_back(pixels_.block(first, std::min(lanes_, g.in_channels - first), lanes_));
    for (const channel_block& one : blocks_) tap_offsets_.push_back(offsets_of(one.count));
  }

  void run(float* dw) {
    const std::int64_t window = divide_up(pixels_.size(lanes_), 16) * 16;
    sum_chunks(
        {positions_, static_cast<std::int64_t>(blocks_.size()), rows_ * taps_ * lanes_,
         window + chunk_positions * lanes_ + 64},
        with_, threads_,
        [&](std::int64_t block, std::int64_t begin, std::int64_t end, float* memory, float* sums) {
          one_chunk(block, begin, end, memory, memory + window, sums);
        },
        [&](std::int64_t block, const float* sums) { write(block, sums, dw); });
  }

 private:
  // Where each tap lies in the pixels of so many channels.
  std::vector<std::int64_t> offsets_of(std::int64_t count) const {
    std::vector<std::int64_t> offsets;
    for (std::int64_t tap = 0; tap < taps_; ++tap)
      offsets.push_back(pixels_.tap_offset(tap) * count);
    return offsets;
  }

  // sums[(row * taps_ + tap) * lanes_ + lane]
  void one_chunk(std::int64_t block, std::int64_t begin, std::int64_t end, float* window,
                 float* left, float* sums) const {
    const channel_block& channels = blocks_[static_cast<std::size_t>(block)];
    std::int64_t offsets[chunk_positions];
    pixels_.fill(x_, 0, channels, begin, end, with_, window, offsets);
    const std::int64_t* const taps = tap_offsets_[static_cast<std::size_t>(block)].data();
    taps_task task{};
    task.depth = end - begin;
    task.a = left;
    task.b = window;
    task.offsets = offsets;
    task.c_tap = lanes_;
    for (std::int64_t row = 0; row < rows_; ++row) {
      pack(channels, row, begin, end, left);
      for (std::int64_t tap = 0; tap < taps_; tap += task.count) {
        // Nearly equal parts: few chains would wait for themselves.
        const std::int64_t parts = divide_up(taps_ - tap, most_taps);
        task.count = divide_up(taps_ - tap, parts);
        task.taps = taps + tap;
        task.c = sums + (row * taps_ + tap) * lanes_;
        with_.taps(task);
      }
    }
  }

  // left[position * lanes + lane] = dy of the lane's channel.
  void pack(const channel_block& channels, std::int64_t row, std::int64_t begin, std::int64_t end,
            float* left) const {
    for (std::int64_t p = begin; p < end;) {
      const std::int64_t n = p / per_image_, stop = std::min(end, (n + 1) * per_image_);
      with_.transpose(dy_ + (n * g_.out_channels + channels.first * rows_ + row) * per_image_ + p -
                          n * per_image_,
                      rows_ * per_image_, channels.count, stop - p, left + (p - begin) * lanes_,
                      lanes_);
      p = stop;
    }
  }

  void write(std::int64_t block, const float* sums, float* dw) const {
    const channel_block& channels = blocks_[static_cast<std::size_t>(block)];
    for (std::int64_t c = 0; c < channels.count; ++c)
      for (std::int64_t i = 0; i < rows_ * taps_; ++i)
        dw[(channels.first + c) * rows_ * taps_ + i] = sums[i * lanes_ + c];
  }

  convolution g_;  // as one group
  const float* x_;
  const float* dy_;
  const kernels& with_;
  const executor& threads_;
  std::int64_t lanes_, rows_, taps_, per_image_, positions_;
  pixels pixels_;
  std::vector<channel_block> blocks_;
  std::vector<std::vector<std::int64_t>> tap_offsets_;
};

}  // namespace

bool is_depthwise(const convolution& g) { return g.groups > 1 && g.groups == g.in_channels; }

void depthwise_weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                               const kernels& with, const executor& threads) {
  depthwise_run(g, x, dy, with, threads).run(dw);
}

}  // namespace potl::numeric::conv

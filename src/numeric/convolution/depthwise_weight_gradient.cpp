// SPDX-License-Identifier: Apache-2.0
// Weight gradients where every input channel is a group: lanes are channels, each tap has a sum of
// its own, and chunks of 512 positions are independent sums that are added in order.
#include <algorithm>
#include <vector>

#include "depthwise.hpp"
#include "geometry.hpp"
#include "pixels.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t chunk = 512;
constexpr std::int64_t most_partial = 128 * 1024;  // floats of chunk sums

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
        workers_(static_cast<std::int64_t>(threads.concurrency())),
        lanes_(with.single.lanes),
        rows_(g.out_channels / g.in_channels),
        taps_(volume(g.kernel)),
        per_image_(volume(g.output())),
        positions_(g.batch * per_image_),
        pixels_(g_, std::min(chunk, positions_)) {
    for (std::int64_t first = 0; first < g.in_channels; first += lanes_)
      blocks_.push_back(pixels_.block(first, std::min(lanes_, g.in_channels - first), lanes_));
    for (const channel_block& one : blocks_) tap_offsets_.push_back(offsets_of(one.count));
  }

  void run(float* dw) {
    const auto count = static_cast<std::int64_t>(blocks_.size());
    const std::int64_t outputs = count * block_sums();  // of one chunk
    const std::int64_t chunks = divide_up(positions_, chunk);
    const std::int64_t together =
        std::clamp<std::int64_t>(most_partial / outputs - 1, workers_, chunks);
    const std::int64_t window = divide_up(pixels_.size(lanes_), 16) * 16;
    const std::int64_t each = window + chunk * lanes_ + 64;
    const buffer memory(workers_ * each), sums((together + 1) * outputs);
    for (std::int64_t done = 0; done < chunks; done += together) {
      const std::int64_t some = std::min(together, chunks - done);
      for_each_block(threads_, workers_, some * count, [&](std::int64_t worker, std::int64_t task) {
        const std::int64_t at = task % some, block = task / some;
        float* const own = memory.get() + worker * each;
        one_chunk(block, done + at, own, own + window,
                  sums.get() + (at + 1) * outputs + block * block_sums());
      });
      for_each_block(threads_, workers_, count, [&](std::int64_t, std::int64_t block) {
        float* const total = sums.get() + block * block_sums();
        for (std::int64_t at = 0; at < some; ++at) {
          const float* const part = total + (at + 1) * outputs;
          if (done + at == 0)
            std::copy_n(part, block_sums(), total);
          else
            with_.add(part, block_sums(), total);
        }
        if (done + some == chunks) write(block, total, dw);
      });
    }
  }

 private:
  // Sums of a block of channels: [row][tap][lane].
  std::int64_t block_sums() const { return rows_ * taps_ * lanes_; }

  // Where each tap lies in the pixels of so many channels.
  std::vector<std::int64_t> offsets_of(std::int64_t count) const {
    std::vector<std::int64_t> offsets;
    for (std::int64_t tap = 0; tap < taps_; ++tap)
      offsets.push_back(pixels_.tap_offset(tap / g_.kernel[2] / g_.kernel[1],
                                           tap / g_.kernel[2] % g_.kernel[1], tap % g_.kernel[2]) *
                        count);
    return offsets;
  }

  void one_chunk(std::int64_t block, std::int64_t index, float* window, float* left,
                 float* sums) const {
    const channel_block& channels = blocks_[static_cast<std::size_t>(block)];
    const std::int64_t begin = index * chunk, end = std::min(begin + chunk, positions_);
    std::int64_t offsets[chunk];
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
  std::int64_t workers_, lanes_, rows_, taps_, per_image_, positions_;
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

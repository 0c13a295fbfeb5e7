// SPDX-License-Identifier: Apache-2.0
// The weight gradient: rows are output channels, lanes are taps of input channels, and the depth
// runs over all positions of all images. Chunks of 512 positions are independent sums: they are
// computed in any order and added in theirs.
#include "weight_gradient.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "geometry.hpp"
#include "pixels.hpp"
#include "shape.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t chunk = 512;
constexpr std::int64_t most_pixels = 160 * 1024;        // floats of input that a block works on
constexpr std::int64_t most_partial = 8 * 1024 * 1024;  // floats of chunk sums

class weight_gradient_run {
 public:
  weight_gradient_run(const convolution& g, const float* x, const float* dy, float* dw,
                      const kernels& with, const executor& threads)
      : g_(g),
        x_(x),
        dy_(dy),
        dw_(dw),
        with_(with),
        threads_(threads),
        workers_(static_cast<std::int64_t>(threads.concurrency())),
        rows_(g.out_channels / g.groups),
        channels_(g.in_channels / g.groups),
        per_image_(volume(g.output())),
        positions_(g.batch * per_image_),
        chunks_(divide_up(positions_, chunk)),
        shape_(choose_shape(with, rows_)),
        panels_(divide_up(rows_, shape_.rows)),
        beside_(std::clamp<std::int64_t>(with.lanes / shape_.rows, 1, panels_)),
        pixels_(g, std::min(chunk, positions_)) {
    std::int64_t each = std::clamp<std::int64_t>(most_pixels / pixels_.per_channel(), 1, channels_);
    if (each < channels_ && each > 16) each -= each % 16;
    for (std::int64_t first = 0; first < channels_; first += each) {
      blocks_.push_back(pixels_.block(first, std::min(each, channels_ - first), with.lanes));
      blocks_.back().before = lanes_;
      lanes_ += static_cast<std::int64_t>(blocks_.back().vectors.size()) * with.lanes;
    }
    widest_ = blocks_.front().count;
  }

  void run() {
    const std::int64_t outputs = g_.groups * rows_ * lanes_;
    const std::int64_t count = static_cast<std::int64_t>(blocks_.size()) * g_.groups;
    const bool apart = workers_ > 1 && chunks_ > 1 && chunks_ * outputs <= most_partial;
    const std::int64_t splits =
        apart || count % workers_ == 0 ? 1 : std::min(workers_, divide_up(panels_, beside_));
    const std::int64_t each = pixels_.size(widest_) + chunk * (beside_ * shape_.rows + 16);
    const std::int64_t tasks = count * splits * (apart ? chunks_ : 1);
    const buffer memory(std::min(workers_, tasks) * each);
    const buffer sums((apart ? chunks_ : 1) * outputs);
    for_each_block(threads_, workers_, tasks, [&](std::int64_t worker, std::int64_t task) {
      const std::int64_t split = task % splits, rest = task / splits;
      const channel_block& channels = blocks_[static_cast<std::size_t>(rest % count / g_.groups)];
      const std::int64_t group = rest % g_.groups, at = rest / count;
      float* const own = memory.get() + worker * each;
      for (std::int64_t c = apart ? at : 0; c < (apart ? at + 1 : chunks_); ++c)
        one_chunk(group, channels, c, split, splits, own,
                  sums.get() + (apart ? c * outputs : 0) + group * rows_ * lanes_, !apart && c > 0);
    });
    for_each_block(threads_, workers_, g_.out_channels, [&](std::int64_t, std::int64_t o) {
      float* const sum = sums.get() + o * lanes_;
      for (std::int64_t c = 1; apart && c < chunks_; ++c) with_.add(sum + c * outputs, lanes_, sum);
      write(sum, dw_ + o * channels_ * volume(g_.kernel));
    });
  }

 private:
  // The sums of one chunk for the rows of one split: sums[row * lanes_ + lane].
  void one_chunk(std::int64_t group, const channel_block& channels, std::int64_t index,
                 std::int64_t split, std::int64_t splits, float* memory, float* sums,
                 bool add) const {
    const std::int64_t begin = index * chunk, end = std::min(begin + chunk, positions_);
    std::int64_t offsets[chunk];
    pixels_.fill(x_, group, channels, begin, end, with_, memory, offsets);
    float* const left = memory + pixels_.size(widest_);
    const std::int64_t together = beside_ * shape_.rows, all = divide_up(panels_, beside_);
    const auto count = static_cast<std::int64_t>(channels.vectors.size());
    tile_task task{};
    task.depth = end - begin;
    task.a_step = together;
    task.b = memory;
    task.offsets = offsets;
    task.c_row = lanes_;
    task.last = with_.lanes;
    task.add = add;
    for (std::int64_t turn = split * all / splits; turn < (split + 1) * all / splits; ++turn) {
      const std::int64_t first = turn * together, high = std::min(together, rows_ - first);
      pack_rows(group * rows_ + first, high, begin, end, left, together);
      for (std::int64_t row = 0; row < high; row += shape_.rows)
        for (std::int64_t v = 0; v < count; v += shape_.vectors) {
          task.a = left + row;
          task.vectors = channels.vectors.data() + v;
          task.c = sums + (first + row) * lanes_ + channels.before + v * with_.lanes;
          with_.tile[std::min(shape_.vectors, count - v)][std::min(shape_.rows, high - row)](task);
        }
    }
  }

  // left[position * together + row] = dy of `high` output channels.
  void pack_rows(std::int64_t first, std::int64_t high, std::int64_t begin, std::int64_t end,
                 float* left, std::int64_t together) const {
    for (std::int64_t p = begin; p < end;) {
      const std::int64_t n = p / per_image_, stop = std::min(end, (n + 1) * per_image_);
      with_.transpose(dy_ + (n * g_.out_channels + first) * per_image_ + p - n * per_image_,
                      per_image_, high, stop - p, left + (p - begin) * together, together);
      p = stop;
    }
  }

  // One row of weights: [channel][tap] from runs of [tap][channel].
  void write(const float* sum, float* dw) const {
    const std::int64_t taps = volume(g_.kernel), run = pixels_.run_taps();
    for (const channel_block& block : blocks_) {
      const float* from = sum + block.before;
      float* const to = dw + block.first * taps;
      if (taps == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(block.count) * sizeof(float));
      } else if (run * block.count % with_.lanes == 0) {
        with_.transpose(from, block.count, taps, block.count, to, taps);
      } else {
        const std::int64_t lanes = divide_up(run * block.count, with_.lanes) * with_.lanes;
        for (std::int64_t t = 0; t < taps; t += run, from += lanes)
          with_.transpose(from, block.count, run, block.count, to + t, taps);
      }
    }
  }

  const convolution& g_;
  const float* x_;
  const float* dy_;
  float* dw_;
  const kernels& with_;
  const executor& threads_;
  std::int64_t workers_, rows_, channels_, per_image_, positions_, chunks_;
  tile_shape shape_;
  std::int64_t panels_;
  std::int64_t beside_;  // panels whose rows are packed together
  pixels pixels_;
  std::vector<channel_block> blocks_;
  std::int64_t lanes_ = 0;  // of one row, in all blocks
  std::int64_t widest_ = 0;
};

}  // namespace

void weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                     const kernels& with, const executor& threads) {
  const std::int64_t weights = g.out_channels * (g.in_channels / g.groups) * volume(g.kernel);
  if (weights == 0) return;
  if (g.batch * volume(g.output()) == 0) {
    std::fill(dw, dw + weights, 0.0F);
    return;
  }
  weight_gradient_run(g, x, dy, dw, with, threads).run();
}

}  // namespace potl::numeric::conv

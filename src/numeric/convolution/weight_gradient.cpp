// SPDX-License-Identifier: Apache-2.0
// The weight gradient: rows are output channels, lanes are taps of input channels, and the depth
// runs over all positions of all images. Chunks of 512 positions, or of log64_chunk() with sums in
// double, are independent sums: they are computed in any order and added in theirs.
#include "weight_gradient.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "depthwise.hpp"
#include "few_channels.hpp"
#include "geometry.hpp"
#include "numeric/gemm/modes.hpp"
#include "pixels.hpp"
#include "pointwise_weight_gradient.hpp"
#include "shape.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t most_pixels = 160 * 1024;        // floats of input that a block works on
constexpr std::int64_t most_partial = 8 * 1024 * 1024;  // floats of chunk sums

// Vectors of one row of the result, about.
std::int64_t lane_vectors(const convolution& g, std::int64_t lanes) {
  return divide_up(g.in_channels / g.groups * volume(g.kernel), lanes);
}

template <class Sum>
class weight_gradient_run {
  static constexpr bool wide = sizeof(Sum) > sizeof(float);
  static constexpr std::int64_t floats_per_sum = wide ? 2 : 1;

 public:
  /// `results` is for sums in double.
  weight_gradient_run(const convolution& g, const float* x, const float* dy, float* dw,
                      const kernels& with, const executor& threads, rounded_results* results)
      : g_(g),
        x_(x),
        dy_(dy),
        dw_(dw),
        with_(with),
        tiles_(tiles_for(with, Sum{})),
        results_(results),
        threads_(threads),
        workers_(static_cast<std::int64_t>(threads.concurrency())),
        rows_(g.out_channels / g.groups),
        channels_(g.in_channels / g.groups),
        per_image_(volume(g.output())),
        positions_(g.batch * per_image_),
        chunk_(wide ? log64_chunk(positions_) : longest),
        chunks_(divide_up(positions_, chunk_)),
        shape_(choose_shape(tiles_.rows, rows_, lane_vectors(g, tiles_.lanes))),
        panels_(divide_up(rows_, shape_.rows)),
        beside_(std::clamp<std::int64_t>(with.single.lanes / shape_.rows, 1, panels_)),
        pixels_(g, std::min(chunk_, positions_)) {
    std::int64_t each = std::clamp<std::int64_t>(most_pixels / pixels_.per_channel(), 1, channels_);
    // Blocks of nearly one size: threads share them.
    each = divide_up(channels_, divide_up(channels_, each));
    if (each < channels_) each = std::min(channels_, divide_up(each, 16) * 16);
    for (std::int64_t first = 0; first < channels_; first += each) {
      blocks_.push_back(pixels_.block(first, std::min(each, channels_ - first), tiles_.lanes));
      blocks_.back().before = lanes_;
      lanes_ += static_cast<std::int64_t>(blocks_.back().vectors.size()) * tiles_.lanes;
    }
    widest_ = blocks_.front().count;
    if constexpr (wide) {
      if (results->order() != 0) {
        order_ = detail::permutation(std::min(chunk_, positions_), results->order());
        last_order_ = detail::permutation(positions_ - (chunks_ - 1) * chunk_, results->order());
      }
    }
  }

  void run() {
    const std::int64_t outputs = g_.groups * rows_ * lanes_;
    const std::int64_t count = static_cast<std::int64_t>(blocks_.size()) * g_.groups;
    const bool apart = workers_ > 1 && chunks_ > 1 && chunks_ * outputs <= most_partial;
    const std::int64_t splits =
        apart || count % workers_ == 0 ? 1 : std::min(workers_, divide_up(panels_, beside_));
    // With sums in double, rows of dy as doubles too.
    const std::int64_t left = longest * (beside_ * shape_.rows + 16);
    const std::int64_t each = divide_up(pixels_.size(widest_), 16) * 16 + left * (wide ? 3 : 1);
    const std::int64_t tasks = count * splits * (apart ? chunks_ : 1);
    const buffer memory(std::min(workers_, tasks) * each);
    const buffer sum_memory((apart ? chunks_ : 1) * outputs * floats_per_sum);
    Sum* const sums = reinterpret_cast<Sum*>(sum_memory.get());
    for_each_block(threads_, workers_, tasks, [&](std::int64_t worker, std::int64_t task) {
      const std::int64_t split = task % splits, rest = task / splits;
      const channel_block& channels = blocks_[static_cast<std::size_t>(rest % count / g_.groups)];
      const std::int64_t group = rest % g_.groups, at = rest / count;
      float* const own = memory.get() + worker * each;
      for (std::int64_t c = apart ? at : 0; c < (apart ? at + 1 : chunks_); ++c)
        one_chunk(group, channels, c, split, splits, own,
                  sums + (apart ? c * outputs : 0) + group * rows_ * lanes_, !apart && c > 0);
    });
    if constexpr (wide) prepare_rounding();
    for_each_block(threads_, workers_, g_.out_channels, [&](std::int64_t, std::int64_t o) {
      Sum* const sum = sums + o * lanes_;
      for (std::int64_t c = 1; apart && c < chunks_; ++c) add(sum + c * outputs, sum);
      if constexpr (wide)
        round(o, sum);
      else
        write(sum, dw_ + o * channels_ * volume(g_.kernel));
    });
  }

 private:
  // The sums of one chunk for the rows of one split: sums[row * lanes_ + lane].
  void one_chunk(std::int64_t group, const channel_block& channels, std::int64_t index,
                 std::int64_t split, std::int64_t splits, float* memory, Sum* sums,
                 bool add) const {
    const std::int64_t begin = index * chunk_, end = std::min(begin + chunk_, positions_);
    std::int64_t offsets[longest];
    pixels_.fill(x_, group, channels, begin, end, with_, memory, offsets);
    const std::vector<std::int64_t>& order = index + 1 < chunks_ ? order_ : last_order_;
    if (!order.empty()) {
      std::int64_t before[longest];
      std::copy_n(offsets, end - begin, before);
      for (std::int64_t k = 0; k < end - begin; ++k)
        offsets[k] = before[order[static_cast<std::size_t>(k)]];
    }
    float* const packed = memory + divide_up(pixels_.size(widest_), 16) * 16;
    const std::int64_t together = beside_ * shape_.rows, all = divide_up(panels_, beside_);
    const auto count = static_cast<std::int64_t>(channels.vectors.size());
    tile_task<Sum> task{};
    task.depth = end - begin;
    task.a_step = together;
    task.b = memory;
    task.offsets = offsets;
    task.c_row = lanes_;
    task.last = tiles_.lanes;
    task.add = add;
    for (std::int64_t turn = split * all / splits; turn < (split + 1) * all / splits; ++turn) {
      const std::int64_t first = turn * together, high = std::min(together, rows_ - first);
      pack_rows(group * rows_ + first, high, begin, end, packed, together);
      const Sum* const left = widened(packed, order, end - begin, together);
      for (std::int64_t row = 0; row < high; row += shape_.rows)
        for (std::int64_t v = 0; v < count; v += shape_.vectors) {
          task.a = left + row;
          task.vectors = channels.vectors.data() + v;
          task.c = sums + (first + row) * lanes_ + channels.before + v * tiles_.lanes;
          tiles_.tile[std::min(shape_.vectors, count - v)][std::min(shape_.rows, high - row)](task);
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

  // Rows of dy as the tiles read them: behind themselves where that is another type.
  const Sum* widened(float* packed, const std::vector<std::int64_t>& order, std::int64_t depth,
                     std::int64_t together) const {
    if constexpr (wide) {
      auto* const to = reinterpret_cast<double*>(packed + longest * (beside_ * shape_.rows + 16));
      for (std::int64_t k = 0; k < depth; ++k) {
        const std::int64_t from = order.empty() ? k : order[static_cast<std::size_t>(k)];
        for (std::int64_t i = 0; i < together; ++i)
          to[k * together + i] = packed[from * together + i];
      }
      return to;
    } else {
      return packed;
    }
  }

  void add(const Sum* from, Sum* to) const {
    if constexpr (wide) {
      for (std::int64_t i = 0; i < lanes_; ++i) to[i] += from[i];
    } else {
      with_.add(from, lanes_, to);
    }
  }

  // The lane of each weight of a row, and bounds of norms: a tap sees a position of its channel at
  // most once.
  void prepare_rounding() {
    const std::int64_t weights = channels_ * volume(g_.kernel);
    std::vector<float> number(static_cast<std::size_t>(lanes_)),
        lane(static_cast<std::size_t>(weights));
    for (std::int64_t i = 0; i < lanes_; ++i)
      number[static_cast<std::size_t>(i)] = static_cast<float>(i);
    write(number.data(), lane.data());
    for (const float one : lane) lane_of_.push_back(static_cast<std::int64_t>(one));
    x_bounds_ = channel_bounds(x_, g_.in_channels, volume(g_.input));
    dy_bounds_ = channel_bounds(dy_, g_.out_channels, per_image_);
  }

  // At least what norm() gives for the elements of a channel, or for some of them.
  std::vector<double> channel_bounds(const float* from, std::int64_t channels,
                                     std::int64_t plane) const {
    const double factor = 1 + static_cast<double>(4 * g_.batch * plane + 64) * 0x1p-53;
    std::vector<double> bounds(static_cast<std::size_t>(channels));
    for_each_block(threads_, workers_, channels, [&](std::int64_t, std::int64_t c) {
      std::vector<double> squares(static_cast<std::size_t>(plane));
      for (std::int64_t n = 0; n < g_.batch; ++n)
        with_.add_squares(from + (n * channels + c) * plane, plane, squares.data());
      double sum = 0;
      for (const double one : squares) sum += one;
      bounds[static_cast<std::size_t>(c)] = factor * std::sqrt(sum);
    });
    return bounds;
  }

  void round(std::int64_t o, const double* sum) const {
    const std::int64_t taps = volume(g_.kernel), weights = channels_ * taps;
    std::vector<double> sums, bounds;
    for (std::int64_t i = 0; i < weights; ++i) {
      const double x = sum[lane_of_[static_cast<std::size_t>(i)]];
      sums.push_back(std::isnan(x) ? std::numeric_limits<double>::quiet_NaN() : x);
      bounds.push_back(x_bounds_[static_cast<std::size_t>(o / rows_ * channels_ + i / taps)]);
    }
    const double row = results_->factor(positions_) * dy_bounds_[static_cast<std::size_t>(o)];
    std::vector<doubtful> found;
    results_->round(
        {sums.data(), weights, &row, bounds.data(), dw_ + o * weights, weights, 1, weights},
        [&](std::int64_t, std::int64_t i, double x) {
          found.push_back({o * weights + i, x});
        });
    results_->keep(found);
  }

  // One row of weights: [channel][tap] from runs of [tap][channel].
  void write(const float* sum, float* dw) const {
    const std::int64_t taps = volume(g_.kernel), run = pixels_.run_taps();
    for (const channel_block& block : blocks_) {
      const float* from = sum + block.before;
      float* const to = dw + block.first * taps;
      if (taps == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(block.count) * sizeof(float));
      } else if (run * block.count % tiles_.lanes == 0) {
        with_.transpose(from, block.count, taps, block.count, to, taps);
      } else {
        const std::int64_t lanes = divide_up(run * block.count, tiles_.lanes) * tiles_.lanes;
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
  const tiles_of<Sum>& tiles_;
  rounded_results* results_;
  const executor& threads_;
  std::int64_t workers_, rows_, channels_, per_image_, positions_, chunk_, chunks_;
  tile_shape shape_;
  std::int64_t panels_;
  std::int64_t beside_;  // panels whose rows are packed together
  pixels pixels_;
  std::vector<channel_block> blocks_;
  std::int64_t lanes_ = 0;  // of one row, in all blocks
  std::int64_t widest_ = 0;
  // Of sums in double: other orders of the terms of a chunk, and what rounding needs.
  std::vector<std::int64_t> order_, last_order_, lane_of_;
  std::vector<double> x_bounds_, dy_bounds_;
};

// Whether there is nothing to add.
bool is_trivial(const convolution& g, float* dw) {
  const std::int64_t weights = g.out_channels * (g.in_channels / g.groups) * volume(g.kernel);
  if (weights == 0) return true;
  if (g.batch * volume(g.output()) != 0) return false;
  std::fill(dw, dw + weights, 0.0F);
  return true;
}

}  // namespace

void weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                     const kernels& with, const executor& threads) {
  if (is_trivial(g, dw)) return;
  if (is_depthwise(g))
    depthwise_weight_gradient(g, x, dy, dw, with, threads);
  else if (has_few_channels(g, with))
    few_channels_weight_gradient(g, x, dy, dw, with, threads);
  else if (reads_rows(g, with))
    pointwise_weight_gradient(g, x, dy, dw, with, threads);
  else
    weight_gradient_tiles(g, x, dy, dw, with, threads);
}

void weight_gradient_tiles(const convolution& g, const float* x, const float* dy, float* dw,
                           const kernels& with, const executor& threads) {
  weight_gradient_run<float>(g, x, dy, dw, with, threads, nullptr).run();
}

void weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                     const kernels& with, const executor& threads, rounded_results& results) {
  if (is_trivial(g, dw)) return;
  weight_gradient_run<double>(g, x, dy, dw, with, threads, &results).run();
}

}  // namespace potl::numeric::conv

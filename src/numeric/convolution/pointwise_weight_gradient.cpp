// SPDX-License-Identifier: Apache-2.0
#include "pointwise_weight_gradient.hpp"

#include <algorithm>

#include "chunk_sums.hpp"
#include "geometry.hpp"
#include "stretch.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t most_lanes = 256;  // copied at once
constexpr std::int64_t least_lanes = 64;  // else reading rows costs more than tiles
constexpr std::int64_t most_chunk_sums = 2 * 1024 * 1024;  // floats of chunk sums

// One operand: its channels of each image lie one after the other.
struct side {
  const float* data;
  std::int64_t channels;
};

// Whether lanes are output channels: then fewer elements are copied into vectors, but the result is
// transposed, in writes that lie far apart.
bool is_swapped(const convolution& g) {
  return g.batch * volume(g.input) * (g.in_channels - g.out_channels) >
         2 * g.in_channels * g.out_channels;
}

class pointwise_run {
 public:
  pointwise_run(const convolution& g, const float* x, const float* dy, float* dw,
                const kernels& with, const executor& threads)
      : with_(with),
        threads_(threads),
        workers_(static_cast<std::int64_t>(threads.concurrency())),
        swapped_(is_swapped(g)),
        rows_{dy, g.out_channels},
        lanes_{x, g.in_channels},
        dw_(dw),
        per_image_(volume(g.input)),
        positions_(g.batch * per_image_),
        chunks_(divide_up(positions_, chunk_positions)),
        width_(most_line_vectors * with.single.lanes),
        panels_(0) {
    if (swapped_) std::swap(rows_, lanes_);
    panels_ = divide_up(lanes_.channels, width_);
    tiles_ = divide_up(rows_.channels, with.rows.rows);
    blocks_ = divide_up(lanes_.channels, most_lanes);
    // Threads share blocks, where these stay wide enough; else chunks, or rows.
    const std::int64_t shared = divide_up(blocks_, workers_) * workers_;
    if (shared * least_lanes <= lanes_.channels) blocks_ = shared;
    const std::int64_t outputs = rows_.channels * lanes_.channels;
    const bool alone = blocks_ % workers_ == 0;
    apart_ = !alone && chunks_ >= 4 * workers_ && chunks_ * outputs <= most_chunk_sums;
    parts_ = alone || apart_ ? 1 : std::min(workers_, tiles_);
    sums_ = buffer((apart_ ? chunks_ : 1) * outputs);
  }

  void run() {
    const std::int64_t each = divide_up(panels_, blocks_) * width_ * chunk_positions;
    const std::int64_t tasks = blocks_ * parts_ * (apart_ ? chunks_ : 1);
    const buffer memory(std::min(workers_, tasks) * each);
    for_each_block(threads_, workers_, tasks, [&](std::int64_t worker, std::int64_t task) {
      const std::int64_t part = task % parts_, block = task / parts_ % blocks_;
      const std::int64_t chunk = task / parts_ / blocks_;
      float* const own = memory.get() + worker * each;
      for (std::int64_t c = apart_ ? chunk : 0; c < (apart_ ? chunk + 1 : chunks_); ++c)
        one_chunk(c, block, part, own);
    });
    // Chunk sums that lie apart are added; the rows of a tile are written by one thread.
    if (!apart_ && !swapped_) return;
    for_each_block(threads_, workers_, tiles_, [&](std::int64_t, std::int64_t tile) {
      const std::int64_t row = first_row(tile), count = first_row(tile + 1) - row;
      const std::int64_t lanes = lanes_.channels;
      float* const total = sums(0) + row * lanes;
      for (std::int64_t c = 1; apart_ && c < chunks_; ++c)
        with_.add(sums(c) + row * lanes, count * lanes, total);
      if (swapped_) with_.transpose(total, lanes, count, lanes, dw_ + row, rows_.channels);
    });
  }

 private:
  // Of a chunk, where chunks lie apart, else of all.
  float* sums(std::int64_t chunk) const {
    if (chunk == 0 && !swapped_) return dw_;
    return sums_.get() + (apart_ ? chunk : 0) * rows_.channels * lanes_.channels;
  }

  // Rows are dealt evenly to tiles.
  std::int64_t first_row(std::int64_t tile) const { return rows_.channels * tile / tiles_; }

  void one_chunk(std::int64_t chunk, std::int64_t block, std::int64_t part, float* packed) const {
    const std::int64_t begin = chunk * chunk_positions;
    const std::int64_t end = std::min(begin + chunk_positions, positions_);
    const std::int64_t first = panels_ * block / blocks_, last = panels_ * (block + 1) / blocks_;
    pack(first, last, begin, end, packed);
    row_run runs[chunk_positions];
    rows_task task{};
    task.runs = runs;
    for (std::int64_t p = begin; p < end;) {
      const std::int64_t n = p / per_image_, stop = std::min(end, (n + 1) * per_image_);
      runs[task.count++] = {rows_.data + n * (rows_.channels - 1) * per_image_ + p, stop - p};
      p = stop;
    }
    task.a_row = per_image_;
    task.b_row = width_;
    task.c_row = lanes_.channels;
    task.add = !apart_ && chunk > 0;
    float* const c = apart_ ? sums(chunk) : sums(0);
    const std::int64_t to = tiles_ * (part + 1) / parts_;
    for (std::int64_t tile = tiles_ * part / parts_; tile < to; ++tile) {
      const std::int64_t row = first_row(tile), count = first_row(tile + 1) - row;
      task.a = row * per_image_;
      for (std::int64_t panel = first; panel < last; ++panel) {
        if (tile + 1 < to) fetch_rows(tile + 1, task, panel - first, last - first);
        const std::int64_t lane = panel * width_;
        const std::int64_t some = std::min(width_, lanes_.channels - lane);
        task.b = packed + (panel - first) * chunk_positions * width_;
        task.next = task.b;
        task.c = c + row * lanes_.channels + lane;
        with_.rows.tile[some / with_.single.lanes][count](task);
      }
    }
  }

  // Asks for a part of the rows of a tile.
  void fetch_rows(std::int64_t tile, const rows_task& task, std::int64_t part,
                  std::int64_t parts) const {
    const std::int64_t row = first_row(tile), count = first_row(tile + 1) - row;
    for (std::int64_t i = 0; i < task.count; ++i)
      stretch{task.runs[i].from + row * per_image_, count, per_image_, task.runs[i].length}.fetch(
          part, parts);
  }

  // Panels of vectors: packed[(panel * chunk_positions + position) * width_ + lane].
  void pack(std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end,
            float* packed) const {
    for (std::int64_t p = begin; p < end;) {
      const std::int64_t n = p / per_image_, stop = std::min(end, (n + 1) * per_image_);
      const float* const image = lanes_.data + n * (lanes_.channels - 1) * per_image_ + p;
      for (std::int64_t panel = first; panel < last; ++panel)
        with_.transpose(image + panel * width_ * per_image_, per_image_,
                        std::min(width_, lanes_.channels - panel * width_), stop - p,
                        packed + ((panel - first) * chunk_positions + p - begin) * width_, width_);
      p = stop;
    }
  }

  const kernels& with_;
  const executor& threads_;
  std::int64_t workers_;
  bool swapped_;  // rows are input channels
  side rows_, lanes_;
  float* dw_;
  std::int64_t per_image_, positions_, chunks_;
  std::int64_t width_, panels_;  // lanes of a panel
  std::int64_t tiles_ = 0;       // of rows
  std::int64_t blocks_ = 0, parts_ = 0;
  bool apart_ = false;  // each chunk has sums of its own
  buffer sums_;
};

}  // namespace

bool reads_rows(const convolution& g, const kernels& with) {
  const std::int64_t lanes = with.single.lanes, places = volume(g.input);
  const std::int64_t copied = is_swapped(g) ? g.out_channels : g.in_channels;
  // Rows a multiple of 4 KB apart share cache sets.
  return lanes > 1 && is_pointwise(g) && g.groups == 1 && copied % lanes == 0 &&
         copied >= least_lanes && places >= 32 && places % 1024 != 0;
}

void pointwise_weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                               const kernels& with, const executor& threads) {
  pointwise_run(g, x, dy, dw, with, threads).run();
}

}  // namespace potl::numeric::conv

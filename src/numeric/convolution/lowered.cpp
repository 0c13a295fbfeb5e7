// SPDX-License-Identifier: Apache-2.0
#include "lowered.hpp"

#include <algorithm>

#include "channels.hpp"
#include "geometry.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

// Of a block of columns: it stays in the second cache from here to the product.
constexpr std::int64_t most_floats = 256 * 1024;

// Whole columns: the integer modes scale a column by its largest element.
std::int64_t columns_at_once(std::int64_t depth, std::int64_t all) {
  return std::clamp<std::int64_t>(most_floats / std::max<std::int64_t>(depth, 1), 32,
                                  std::max<std::int64_t>(all, 32));
}

// One group and phase of a gather.
class lowering {
 public:
  lowering(const gather& what, std::int64_t group, const phase& one)
      : what_(what),
        group_(group),
        phase_(one),
        taps_(static_cast<std::int64_t>(one.taps.size())),
        depth_(what.channels * taps_) {
    for (std::size_t i = 0; i < 3; ++i) {
      source_[i] = what.axes[i].source;
      grid_[i] = std::max<std::int64_t>(
          0, divide_up(what.target_size[i] - one.first[i], what.write_step[i]));
    }
    for (std::int64_t row = 0; row < what.rows; ++row)
      row_at_.push_back((group * what.rows + row) * volume(what.target_size));
  }

  void run(const product& multiply, const executor& threads) {
    const std::int64_t all = what_.batch * volume(grid_);
    std::vector<float> weights(static_cast<std::size_t>(what_.rows * depth_));
    for (std::int64_t row = 0; row < what_.rows; ++row)
      for (std::int64_t k = 0; k < depth_; ++k)
        weights[static_cast<std::size_t>(row * depth_ + k)] =
            what_.weights[group_ * what_.weight_group + row * what_.weight_row +
                          k / taps_ * what_.weight_channel + tap_of(k).weight];
    const std::int64_t most = columns_at_once(depth_, all);
    std::vector<float> right(static_cast<std::size_t>(depth_ * most));
    std::vector<float> sums(static_cast<std::size_t>(what_.rows * most));
    for (std::int64_t begin = 0; begin < all; begin += most) {
      const std::int64_t columns = std::min(most, all - begin);
      std::vector<std::int64_t> column_at;
      for (std::int64_t j = begin; j < begin + columns; ++j) column_at.push_back(target_of(j));
      cut(begin, columns);
      threads.run(static_cast<std::size_t>(depth_), [&](std::size_t k) {
        fill_row(static_cast<std::int64_t>(k),
                 right.data() + static_cast<std::int64_t>(k) * columns);
      });
      const matrix<float> c = row_major(sums.data(), what_.rows, columns);
      multiply(row_major<const float>(weights.data(), what_.rows, depth_),
               row_major<const float>(right.data(), depth_, columns), c);
      for (std::int64_t row = 0; row < what_.rows; ++row)
        for (std::int64_t j = 0; j < columns; ++j)
          what_.target[row_at_[static_cast<std::size_t>(row)] +
                       column_at[static_cast<std::size_t>(j)]] = c(row, j);
    }
  }

 private:
  const tap& tap_of(std::int64_t k) const {
    return phase_.taps[static_cast<std::size_t>(k % taps_)];
  }

  // (image, position on the grid) of a column.
  std::array<std::int64_t, 4> position(std::int64_t column) const {
    const std::int64_t line = column / grid_[2], plane = line / grid_[1];
    return {plane / grid_[0], plane % grid_[0], line % grid_[1], column % grid_[2]};
  }

  std::int64_t target_of(std::int64_t column) const {
    const auto at = position(column);
    std::int64_t index = 0;
    for (std::size_t i = 0; i < 3; ++i)
      index = index * what_.target_size[i] + phase_.first[i] + at[i + 1] * what_.write_step[i];
    return at[0] * what_.groups * what_.rows * volume(what_.target_size) + index;
  }

  // Columns [begin, begin + columns) as runs along lines of the grid.
  void cut(std::int64_t begin, std::int64_t columns) {
    runs_.clear();
    for (std::int64_t j = begin; j < begin + columns;) {
      const auto at = position(j);
      const std::int64_t length = std::min(grid_[2] - at[3], begin + columns - j);
      runs_.push_back({at, j - begin, length});
      j += length;
    }
  }

  void fill_row(std::int64_t k, float* row) const {
    const tap& one = tap_of(k);
    const std::int64_t channel = group_ * what_.channels + k / taps_;
    const auto source_of = [&](std::size_t i, std::int64_t q) {
      return (q + one.shift[i]) * what_.axes[i].step +
             what_.axes[i].starts[static_cast<std::size_t>(one.slot[i])];
    };
    const std::int64_t step = what_.axes[2].step, size = source_[2];
    for (const line_run& run : runs_) {
      float* const to = row + run.column;
      const std::int64_t d = source_of(0, run.at[1]), h = source_of(1, run.at[2]);
      if (d < 0 || d >= source_[0] || h < 0 || h >= source_[1]) {
        std::fill(to, to + run.length, 0.0F);
        continue;
      }
      const std::int64_t plane = run.at[0] * what_.groups * what_.channels + channel;
      const float* const line = what_.source + ((plane * source_[0] + d) * source_[1] + h) * size;
      copy_line(line, size, source_of(2, run.at[3]), step, run.length, to);
    }
  }

  struct line_run {
    std::array<std::int64_t, 4> at;
    std::int64_t column, length;
  };

  const gather& what_;
  std::int64_t group_;
  const phase& phase_;
  std::int64_t taps_, depth_;
  std::array<std::int64_t, 3> source_{}, grid_{};
  std::vector<line_run> runs_;
  std::vector<std::int64_t> row_at_;
};

}  // namespace

void lowered(const gather& what, const product& multiply, const executor& threads) {
  if (what.batch * what.rows * volume(what.target_size) == 0) return;
  for (std::int64_t group = 0; group < what.groups; ++group)
    for (const phase& one : what.phases) lowering(what, group, one).run(multiply, threads);
}

void lowered_weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                             const product& multiply, const executor& threads) {
  const std::int64_t taps = volume(g.kernel);
  const std::int64_t rows = g.out_channels / g.groups, channels = g.in_channels / g.groups;
  const std::int64_t depth = g.batch * volume(g.output()), all = channels * taps;
  const std::int64_t most = columns_at_once(depth, all);
  if (rows * all == 0) return;
  std::vector<float> left(static_cast<std::size_t>(rows * depth));
  std::vector<float> right(static_cast<std::size_t>(depth * std::min(most, all)));
  std::vector<float> sums(static_cast<std::size_t>(rows * std::min(most, all)));
  for (std::int64_t group = 0; group < g.groups; ++group) {
    for (std::int64_t row = 0; row < rows; ++row)
      copy_channel(g, dy, group * rows + row, left.data() + row * depth);
    for (std::int64_t begin = 0; begin < all; begin += most) {
      const std::int64_t columns = std::min(most, all - begin);
      // Columns lie one after the other: a column is one channel seen through one tap.
      threads.run(static_cast<std::size_t>(columns), [&](std::size_t task) {
        const std::int64_t j = begin + static_cast<std::int64_t>(task);
        see_channel(g, x, group * channels + j / taps, j % taps,
                    right.data() + static_cast<std::int64_t>(task) * depth);
      });
      const matrix<float> c = row_major(sums.data(), rows, columns);
      multiply(row_major<const float>(left.data(), rows, depth),
               row_major<const float>(right.data(), columns, depth).transposed(), c);
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t j = 0; j < columns; ++j)
          dw[(group * rows + row) * all + begin + j] = c(row, j);
    }
  }
}

}  // namespace potl::numeric::conv

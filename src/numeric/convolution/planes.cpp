// SPDX-License-Identifier: Apache-2.0
// The planes of a depthwise gather: a window of one group is filled, and each phase slides its taps
// over it. In the integer modes, over all lines of the window as if they were one.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "depthwise.hpp"
#include "geometry.hpp"
#include "grid.hpp"
#include "integers.hpp"
#include "lines.hpp"
#include "window.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t most_terms = 128;               // one chunk, and weights stay in a cache
constexpr std::int64_t most_plane_window = 96 * 1024;  // floats that a block reads

class planes_run {
 public:
  /// Of integers of so many bits; of floats, where they are 0.
  planes_run(int bits, const gather& what, const kernels& with, const executor& threads)
      : bits_(bits),
        what_(what),
        with_(with),
        threads_(threads),
        workers_(static_cast<std::int64_t>(threads.concurrency())),
        line_(what.axes[2].grid),
        high_(lines_of_a_block()),
        window_(what, 1, 1, high_, true),
        beside_(phases_beside(what)),
        span_((high_ - 1) * window_.line(0, 0, 1) + line_) {
    for (const phase& one : what.phases) offsets_.push_back(window_.offsets(one));
  }

  void run() {
    const std::int64_t integers =
        bits_ == 0
            ? 0
            : bytes_of<std::uint32_t>(window_.size()) + bytes_of<std::uint32_t>(span_) +
                  bytes_of<double>(span_) + bytes_of<float>(span_) + bytes_of<double>(most_terms);
    const std::int64_t bytes = bytes_of<float>(window_.size()) + bytes_of<float>(stage_size()) +
                               bytes_of<float>(most_terms) + integers;
    const std::int64_t each = bytes / std::int64_t{sizeof(float)};
    const std::int64_t across_h = divide_up(what_.axes[1].grid, high_), d = what_.axes[0].grid;
    const std::int64_t blocks = what_.batch * what_.groups * d * across_h;
    const buffer memory(std::min(workers_, blocks) * each);
    for_each_block(threads_, workers_, blocks, [&](std::int64_t worker, std::int64_t index) {
      const std::int64_t h = index % across_h * high_, plane = index / across_h / d;
      const block here{plane / what_.groups,     1, index / across_h % d,
                       index / across_h % d + 1, h, std::min(h + high_, what_.axes[1].grid)};
      work(here, plane % what_.groups, memory.get() + worker * each);
    });
  }

 private:
  std::int64_t lines_of_a_block() const {
    const axis &d = what_.axes[0], &h = what_.axes[1], &w = what_.axes[2];
    const auto slots =
        static_cast<std::int64_t>(d.starts.size() * h.starts.size() * w.starts.size());
    const std::int64_t per_line =
        std::max<std::int64_t>(1, what_.channels * slots * (1 + d.reach) * (w.grid + w.reach));
    return std::clamp<std::int64_t>(most_plane_window / per_line, std::min<std::int64_t>(h.grid, 4),
                                    h.grid);
  }

  // Where a line of results does not lie in one piece.
  std::int64_t stage_size() const { return what_.write_step[2] == 1 ? 0 : beside_ * high_ * line_; }

  void work(const block& here, std::int64_t group, float* memory) const {
    const float* const source = window_.fill(here, group, with_, memory);
    (void)take<float>(memory, window_.size());
    float* const stage = take<float>(memory, stage_size());
    float* const weights = take<float>(memory, most_terms);
    const integer_memory own = bits_ == 0 ? integer_memory{} : integers_of(source, memory);
    const std::array<std::int64_t, 3>& size = what_.target_size;
    filter_task task{};
    task.weights = weights;
    task.b_line = window_.line(0, 0, 1);
    task.length = line_;
    for (std::int64_t row = 0; row < what_.rows; ++row) {
      float* const target =
          what_.target + ((here.image * what_.groups + group) * what_.rows + row) * volume(size);
      for (std::size_t p = 0; p < what_.phases.size(); ++p) {
        const phase& of = what_.phases[p];
        const std::int64_t at_d = of.first[0] + here.d0 * what_.write_step[0];
        const std::int64_t at_h = of.first[1] + here.h0 * what_.write_step[1];
        // The grid may reach beyond the target.
        const std::int64_t room =
            at_h < size[1] ? divide_up(size[1] - at_h, what_.write_step[1]) : 0;
        task.lines = at_d < size[0] ? std::min(here.h1 - here.h0, room) : 0;
        if (task.lines == 0) continue;
        copy_weights(group, row, of, weights);
        task.depth = static_cast<std::int64_t>(offsets_[p].size());
        task.offsets = offsets_[p].data();
        task.b = source;
        const auto slide = [&] { bits_ == 0 ? with_.filter(task) : on_grid(task, own); };
        float* const to = target + (at_d * size[1] + at_h) * size[2];
        if (what_.write_step[2] == 1) {
          task.c = to;
          task.c_line = size[2] * what_.write_step[1];
          slide();
          continue;
        }
        const auto beside = static_cast<std::size_t>(beside_);
        task.c = stage + static_cast<std::int64_t>(p % beside) * high_ * line_;
        task.c_line = line_;
        slide();
        if (p % beside + 1 == beside)
          write_lines(what_, with_, p + 1 - beside, here, stage, high_ * line_, target);
      }
    }
  }

  void copy_weights(std::int64_t group, std::int64_t row, const phase& of, float* to) const {
    const float* from = what_.weights + group * what_.weight_group + row * what_.weight_row;
    for (std::int64_t c = 0; c < what_.channels; ++c, from += what_.weight_channel)
      for (const tap& t : of.taps) *to++ = from[t.weight];
  }

  struct integer_memory {
    std::uint32_t *window, *largest;
    double *grid, *weights;
    float* sums;
  };

  integer_memory integers_of(const float* source, float* memory) const {
    integer_memory own{};
    own.window = take<std::uint32_t>(memory, window_.size());
    own.largest = take<std::uint32_t>(memory, span_);
    own.grid = take<double>(memory, span_);
    own.sums = take<float>(memory, span_);
    own.weights = take<double>(memory, most_terms);
    const std::int64_t filled = window_.size() - slack;
    body_.largest({source, 1, 1, 1, filled}, own.window);
    return own;
  }

  void on_grid(const filter_task& task, const integer_memory& own) const {
    std::uint32_t largest = 0;
    for (std::int64_t k = 0; k < task.depth; ++k)
      largest = std::max(largest, std::bit_cast<std::uint32_t>(task.weights[k]) & 0x7fffffffU);
    const double grid = grid_of(largest, bits_), limit = limit_of(grid, bits_);
    for (std::int64_t k = 0; k < task.depth; ++k)
      own.weights[k] = conv::on_grid(task.weights[k], grid, limit);
    const std::int64_t count = (task.lines - 1) * task.b_line + task.length;
    body_.largest_seen(own.window, task.offsets, task.depth, count, own.largest);
    if (with_.grids(own.largest, count, bits_, own.grid))
      with_.filter_on_grid(
          {task.depth, own.weights, task.offsets, task.b, own.grid, count, own.sums});
    else
      filter_at_limit(task, own, count);
    for (std::int64_t line = 0; line < task.lines; ++line)
      std::copy_n(own.sums + line * task.b_line, task.length, task.c + line * task.c_line);
  }

  // Seldom needed.
  void filter_at_limit(const filter_task& task, const integer_memory& own,
                       std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const double limit = limit_of(own.grid[i], bits_);
      double sum = 0;
      for (std::int64_t k = 0; k < task.depth; ++k)
        sum += own.weights[k] * conv::on_grid(task.b[task.offsets[k] + i], own.grid[i], limit);
      own.sums[i] = std::isnan(sum) ? std::numeric_limits<float>::quiet_NaN()
                                    : static_cast<float>(sum) + 0.0F;
    }
  }

  int bits_;
  const detail::kernels_integer& body_ = detail::active_integer(0);  // without its tiles
  const gather& what_;
  const kernels& with_;
  const executor& threads_;
  std::int64_t workers_, line_, high_;
  window window_;
  std::int64_t beside_;  // phases of a line
  std::int64_t span_;    // from a block's first result to its last
  std::vector<std::vector<std::int64_t>> offsets_;
};

}  // namespace

bool has_planes(const gather& what) {
  std::size_t taps = 0;
  for (const phase& one : what.phases) taps = std::max(taps, one.taps.size());
  return what.rows <= 2 && what.channels * static_cast<std::int64_t>(taps) <= most_terms;
}

void run_planes(const gather& what, const kernels& with, const executor& threads) {
  planes_run(0, what, with, threads).run();
}

void run_planes_of_integers(int bits, const gather& what, const kernels& with,
                            const executor& threads) {
  planes_run(bits, what, with, threads).run();
}

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// Runs a gather: blocks of results times rows of weights, in chunks of 512 terms, or with sums in
// double in chunks of log64_chunk() terms.
//
// Where the lines of the grid are whole vectors and few rows share them, the tiles read the window
// itself (an unaligned load per tap). Else a chunk of the block is packed into panels, which all
// rows then read in order.
#include <algorithm>
#include <cstring>

#include "depthwise.hpp"
#include "geometry.hpp"
#include "line_run.hpp"
#include "lines.hpp"
#include "numeric/gemm/modes.hpp"
#include "panel_lines.hpp"
#include "shape.hpp"
#include "weights.hpp"
#include "window.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t many = 12;  // vectors of results: of no shape are some left over

template <class Sum>
class gather_run {
  static constexpr bool wide = sizeof(Sum) > sizeof(float);
  static constexpr std::int64_t floats_per_sum = wide ? 2 : 1;

 public:
  /// `results` is for sums in double.
  gather_run(const gather& what, const kernels& with, const executor& threads,
             rounded_results* results)
      : what_(what),
        with_(with),
        tiles_(tiles_for(with, Sum{})),
        results_(results),
        threads_(threads),
        workers_(static_cast<std::int64_t>(threads.concurrency())),
        line_(what.axes[2].grid),
        shape_(choose_shape(tiles_.rows, what.rows, many)),
        panels_(divide_up(what.rows, shape_.rows)),
        plan_(what, tiles_.lanes, workers_, panels_),
        window_(what, plan_.images, plan_.d, plan_.h) {
    identity_.resize(longest);
    for (std::int64_t k = 0; k < longest; ++k)
      identity_[static_cast<std::size_t>(k)] = k * shape_.vectors * tiles_.lanes;
    for (const phase& one : what.phases) {
      std::vector<std::int64_t> offsets = window_.offsets(one);
      const auto count = static_cast<std::int64_t>(offsets.size());
      terms_ += count;
      if constexpr (wide) {
        first_channel_.emplace_back(offsets.begin(),
                                    offsets.begin() + static_cast<std::ptrdiff_t>(one.taps.size()));
        order_.push_back(detail::permutation(results->order() == 0 ? 0 : count, results->order()));
        const std::vector<std::int64_t> before = offsets;
        for (std::size_t k = 0; k < order_.back().size(); ++k)
          offsets[k] = before[static_cast<std::size_t>(order_.back()[k])];
      }
      offsets_.push_back(std::move(offsets));
    }
    pack_weights();
  }

  void run() {
    const std::int64_t width = shape_.vectors * tiles_.lanes;
    block_lanes_ = divide_up(plan_.results(), width) * width;
    panel_floats_ = plan_.direct ? 0 : block_lanes_ * longest + slack;
    const std::int64_t rows = plan_.panels * shape_.rows;
    stage_floats_ = plan_.staged ? what_.write_step[2] * rows * block_lanes_ : 0;
    // Doubles: sums of a phase, squares of the window, bounds of the results.
    window_floats_ = divide_up(window_.size(), 16) * 16;
    const std::int64_t doubles =
        wide ? rows * block_lanes_ + plan_.images * extent(plan_.d * plan_.h) + block_lanes_ : 0;
    const std::int64_t each =
        divide_up(window_floats_ + panel_floats_ + stage_floats_ + 2 * doubles + slack, 16) * 16;
    const std::int64_t splits = divide_up(panels_, plan_.panels);
    const std::int64_t blocks = plan_.count() * what_.groups * splits;
    const buffer memory(std::min(workers_, blocks) * each);
    for_each_block(threads_, workers_, blocks, [&](std::int64_t worker, std::int64_t index) {
      const std::int64_t split = index % splits, group = index / splits % what_.groups;
      work(plan_.at(index / splits / what_.groups), group, split, memory.get() + worker * each);
    });
  }

 private:
  // Weights of every (group, phase): panels of rows, in each the terms in order.
  void pack_weights() {
    const std::int64_t panel_rows = shape_.rows;
    weights_ = buffer((what_.groups * terms_ * panels_ * panel_rows + slack) * floats_per_sum);
    if constexpr (wide)
      row_bounds_.resize(what_.phases.size() *
                         static_cast<std::size_t>(what_.groups * panels_ * panel_rows));
    for_each_block(threads_, workers_, what_.groups * panels_,
                   [&](std::int64_t, std::int64_t index) {
                     const std::int64_t group = index / panels_, panel = index % panels_;
                     for (std::size_t p = 0; p < what_.phases.size(); ++p) {
                       Sum* const target = weights(group, p, panel);
                       if constexpr (wide)
                         widen_panel(group, panel, p, target);
                       else
                         pack_panel(group, panel, p, target);
                     }
                   });
  }

  // Also the norms of the rows, whose terms are still in order.
  void widen_panel(std::int64_t group, std::int64_t panel, std::size_t p, double* target) {
    const std::int64_t rows = shape_.rows, depth = terms(p);
    std::vector<float> packed(static_cast<std::size_t>(depth * rows + slack));
    pack_panel(group, panel, p, packed.data());
    const std::vector<std::int64_t>& order = order_[p];
    for (std::int64_t k = 0; k < depth; ++k) {
      const std::int64_t from = order.empty() ? k : order[static_cast<std::size_t>(k)];
      std::copy_n(packed.data() + from * rows, rows, target + k * rows);
    }
    double* const bounds = row_bounds(group, p, panel);
    for (std::int64_t row = 0; row < rows; ++row)
      bounds[row] = results_->factor(depth) * norm(packed.data() + row, depth, rows);
  }

  double* row_bounds(std::int64_t group, std::size_t p, std::int64_t panel) {
    const auto at = (static_cast<std::int64_t>(p) * what_.groups + group) * panels_ + panel;
    return row_bounds_.data() + at * shape_.rows;
  }

  std::int64_t terms(std::size_t p) const { return static_cast<std::int64_t>(offsets_[p].size()); }

  Sum* weights(std::int64_t group, std::size_t p, std::int64_t panel) const {
    std::int64_t before = group * terms_ * panels_;
    for (std::size_t i = 0; i < p; ++i) before += terms(i) * panels_;
    return reinterpret_cast<Sum*>(weights_.get()) + (before + terms(p) * panel) * shape_.rows;
  }

  void pack_panel(std::int64_t group, std::int64_t panel, std::size_t p, float* target) const {
    const std::int64_t row = panel * shape_.rows;
    conv::pack_weights(
        what_, {what_.phases[p], group, row, std::min(shape_.rows, what_.rows - row), 0, terms(p)},
        with_, target, shape_.rows);
  }

  // One block of results, for the rows of one split.
  void work(const block& here, std::int64_t group, std::int64_t split, float* memory) {
    const float* const source = window_.fill(here, group, with_, memory);
    float* packed = memory + window_floats_;
    double_space own{};
    if constexpr (wide) {
      own.sums = reinterpret_cast<double*>(packed);
      make_doubles(here, source, own);
      packed = reinterpret_cast<float*>(own.end);
    }
    float* const stage = packed + panel_floats_;
    std::vector<doubtful> found;
    const std::int64_t first = split * plan_.panels;
    const std::int64_t last = std::min(first + plan_.panels, panels_);
    const std::int64_t results = here.images * (here.d1 - here.d0) * (here.h1 - here.h0) * line_;
    const panel_lines lines =
        lines_of(here, window_, {line_, tiles_.lanes, shape_.vectors * tiles_.lanes, plan_.direct});
    const std::size_t beside = what_.phases.size() / phase_rows();
    for (std::size_t p = 0; p < what_.phases.size(); ++p) {
      float* c =
          stage + static_cast<std::int64_t>(p % beside) * plan_.panels * shape_.rows * block_lanes_;
      std::int64_t c_row = block_lanes_;
      if (!plan_.staged) {
        c_row = volume(what_.target_size);
        c = what_.target + ((here.image * what_.groups + group) * what_.rows) * c_row +
            (here.d0 * what_.axes[1].grid + here.h0) * line_ + first * shape_.rows * c_row;
      }
      if constexpr (wide) {
        sums(p, group, first, last, results, source, lines, packed, own.sums, block_lanes_);
        bound_columns(p, here, own);
        const typename rounded_results::area part{
            own.sums, block_lanes_, row_bounds(group, p, first), own.bounds,
            c,        c_row,        rows_of(first, last),        results};
        results_->round(part, [&](std::int64_t row, std::int64_t result, double sum) {
          const std::int64_t index =
              target_index(what_, p, here, group, first * shape_.rows + row, result);
          if (index >= 0) found.push_back({index, sum});
        });
      } else {
        sums(p, group, first, last, results, source, lines, packed, c, c_row);
      }
      if (plan_.staged && p % beside + 1 == beside)
        write(p + 1 - beside, here, group, first, last, stage);
    }
    if constexpr (wide) results_->keep(found);
  }

  // Sums in double and what bounds their errors.
  struct double_space {
    double *sums, *squares, *bounds, *end;
    std::int64_t extent;  // of the squares of one image
  };

  // Places of the window in one image, where a block has so many lines.
  std::int64_t extent(std::int64_t lines) const {
    return window_.is_source() ? lines * line_ : window_.channel();
  }

  // The rest of a space that begins with the sums.
  void make_doubles(const block& here, const float* source, double_space& own) const {
    own.extent = extent((here.d1 - here.d0) * (here.h1 - here.h0));
    own.squares = own.sums + plan_.panels * shape_.rows * block_lanes_;
    own.bounds = own.squares + plan_.images * extent(plan_.d * plan_.h);
    own.end = own.bounds + block_lanes_;
    std::fill(own.squares, own.squares + here.images * own.extent, 0.0);
    for (std::int64_t n = 0; n < here.images; ++n)
      for (std::int64_t c = 0; c < what_.channels; ++c)
        with_.add_squares(source + window_.line(n, 0, 0) + c * window_.channel(), own.extent,
                          own.squares + n * own.extent);
  }

  // Of what norm() gives for what the results read. Sums of squares, there and here, are off by
  // less than terms() + 16 roundings, and norm() adds (terms() + 16) 2^-53.
  void bound_columns(std::size_t p, const block& here, const double_space& own) const {
    const std::vector<std::int64_t>& taps = first_channel_[p];
    const double factor = 1 + static_cast<double>(4 * terms(p) + 64) * 0x1p-53;
    double* to = own.bounds;
    for (std::int64_t n = 0; n < here.images; ++n)
      for (std::int64_t d = 0; d < here.d1 - here.d0; ++d)
        for (std::int64_t h = 0; h < here.h1 - here.h0; ++h, to += line_)
          with_.root_of_sums(own.squares + n * own.extent + window_.line(0, d, h), taps.data(),
                             static_cast<std::int64_t>(taps.size()), factor, line_, to);
  }

  std::size_t phase_rows() const {
    return static_cast<std::size_t>(std::min(what_.write_step[0], what_.target_size[0]) *
                                    std::min(what_.write_step[1], what_.target_size[1]));
  }

  // Some terms for all panels, then the next: each plane of the source is read as one stream.
  void pack_panels(const float* source, const std::int64_t* offsets, std::int64_t depth,
                   const panel_lines& lines, float* packed) const {
    constexpr std::int64_t streams = 16;
    const std::int64_t width = shape_.vectors * tiles_.lanes;
    for (std::int64_t k = 0; k < depth; k += streams)
      for (std::size_t j = 0; j + 1 < lines.panels.size(); ++j)
        with_.pack({source, offsets + k, std::min(streams, depth - k),
                    lines.segments.data() + lines.panels[j],
                    static_cast<std::int64_t>(lines.panels[j + 1] - lines.panels[j]),
                    packed + (static_cast<std::int64_t>(j) * depth + k) * width, width});
  }

  // All chunks of one phase: c[row * c_row + result].
  void sums(std::size_t p, std::int64_t group, std::int64_t first, std::int64_t last,
            std::int64_t results, const float* source, const panel_lines& lines, float* packed,
            Sum* c, std::int64_t c_row) const {
    const std::int64_t width = shape_.vectors * tiles_.lanes, depth = terms(p);
    const std::int64_t chunk = wide ? log64_chunk(depth) : longest;
    const std::int64_t tiles = divide_up(results, width);
    if (depth == 0)
      for (std::int64_t row = 0; row < rows_of(first, last); ++row)
        std::fill(c + row * c_row, c + row * c_row + results, Sum{0});
    for (std::int64_t begin = 0; begin < depth; begin += chunk) {
      tile_task<Sum> task{};
      task.depth = std::min(chunk, depth - begin);
      task.a_step = shape_.rows;
      task.c_row = c_row;
      task.add = begin != 0;
      const std::int64_t* const offsets = offsets_[p].data() + begin;
      if (!plan_.direct) pack_panels(source, offsets, task.depth, lines, packed);
      const std::int64_t in_order[most_vectors] = {0, tiles_.lanes, 2 * tiles_.lanes,
                                                   3 * tiles_.lanes};
      const auto one = [&](std::int64_t i, std::int64_t j) {
        const std::int64_t here = std::min(width, results - j * width);
        const std::int64_t vectors = divide_up(here, tiles_.lanes);
        const std::int64_t rows = std::min(shape_.rows, what_.rows - i * shape_.rows);
        task.last = here - (vectors - 1) * tiles_.lanes;
        task.a = weights(group, p, i) + begin * shape_.rows;
        task.b = plan_.direct ? source : packed + j * task.depth * width;
        task.offsets = plan_.direct ? offsets : identity_.data();
        task.vectors = plan_.direct ? lines.vectors.data() + j * shape_.vectors : in_order;
        task.c = c + (i - first) * shape_.rows * c_row + j * width;
        tiles_.tile[vectors][rows](task);
      };
      // What is smaller stays in the first cache.
      if ((last - first) * shape_.rows * task.depth < 6000)
        for (std::int64_t j = 0; j < tiles; ++j)
          for (std::int64_t i = first; i < last; ++i) one(i, j);
      else
        for (std::int64_t i = first; i < last; ++i)
          for (std::int64_t j = 0; j < tiles; ++j) one(i, j);
    }
  }

  std::int64_t rows_of(std::int64_t first, std::int64_t last) const {
    return std::min(last * shape_.rows, what_.rows) - first * shape_.rows;
  }

  // From the stage to the target.
  void write(std::size_t p, const block& here, std::int64_t group, std::int64_t first,
             std::int64_t last, const float* stage) const {
    const std::array<std::int64_t, 3>& size = what_.target_size;
    const std::int64_t plane = plan_.panels * shape_.rows * block_lanes_;
    const bool whole = volume(what_.write_step) == 1;
    for (std::int64_t n = 0; n < here.images; ++n)
      for (std::int64_t row = 0; row < rows_of(first, last); ++row) {
        float* const target =
            what_.target +
            (((here.image + n) * what_.groups + group) * what_.rows + first * shape_.rows + row) *
                volume(size);
        const std::int64_t each = (here.d1 - here.d0) * (here.h1 - here.h0) * line_;
        const float* from = stage + row * block_lanes_ + n * each;
        if (whole) {
          std::memcpy(target + (here.d0 * size[1] + here.h0) * size[2], from,
                      static_cast<std::size_t>(each) * sizeof(float));
          continue;
        }
        write_lines(what_, with_, p, here, from, plane, target);
      }
  }

  const gather& what_;
  const kernels& with_;
  const tiles_of<Sum>& tiles_;
  rounded_results* results_;
  const executor& threads_;
  std::int64_t workers_, line_;
  tile_shape shape_;
  std::int64_t panels_;
  block_plan plan_;
  window window_;
  std::vector<std::int64_t> identity_;              // of the terms in a packed panel
  std::vector<std::vector<std::int64_t>> offsets_;  // per phase, of the terms in the window
  std::int64_t terms_ = 0;                          // of all phases
  // Of sums in double, per phase: offsets of the first channel's terms, and the order of all terms.
  std::vector<std::vector<std::int64_t>> first_channel_, order_;
  std::vector<double> row_bounds_;
  buffer weights_;
  std::int64_t block_lanes_ = 0, window_floats_ = 0, panel_floats_ = 0, stage_floats_ = 0;
};

}  // namespace

void run(const gather& what, const kernels& with, const executor& threads) {
  if (what.batch * what.groups * what.rows * volume(what.target_size) == 0) return;
  if (has_planes(what))
    run_planes(what, with, threads);
  else if (has_lines(what, with))
    run_lines(what, with, threads);
  else
    run_tiles(what, with, threads);
}

void run_tiles(const gather& what, const kernels& with, const executor& threads) {
  gather_run<float>(what, with, threads, nullptr).run();
}

void run(const gather& what, const kernels& with, const executor& threads,
         rounded_results& results) {
  if (what.batch * what.groups * what.rows * volume(what.target_size) == 0) return;
  gather_run<double>(what, with, threads, &results).run();
}

}  // namespace potl::numeric::conv

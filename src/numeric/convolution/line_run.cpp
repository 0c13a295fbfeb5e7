// SPDX-License-Identifier: Apache-2.0
#include "line_run.hpp"

#include <algorithm>
#include <vector>

#include "geometry.hpp"
#include "line_blocks.hpp"
#include "lines.hpp"
#include "stretch.hpp"
#include "weights.hpp"
#include "window.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t part_terms = 128;  // of them: their weights stay in the first cache

class line_run {
 public:
  line_run(const gather& what, const kernels& with, const executor& threads)
      : what_(what),
        with_(with),
        threads_(threads),
        workers_(static_cast<std::int64_t>(threads.concurrency())),
        lanes_(with.single.lanes),
        width_(std::min(most_line_vectors * lanes_, divide_up(what.rows, lanes_) * lanes_)),
        panels_(divide_up(what.rows, width_)),
        read_(what),
        blocks_(line_blocks(what, read_)),
        window_(read_.from, blocks_.images, (blocks_.d - 1) * read_.move[0] + 1,
                (blocks_.h - 1) * read_.move[1] + 1),
        results_(blocks_.results()),
        staged_(volume(what.write_step) != 1) {
    for (const phase& one : read_.from.phases) offsets_.push_back(window_.offsets(one));
  }

  void run() {
    window_floats_ = divide_up(window_.size(), 16) * 16;
    sums_ = results_ * width_;
    std::size_t most = 0;
    for (const std::vector<std::int64_t>& offsets : offsets_) most = std::max(most, offsets.size());
    // The chains of a chunk that is not the first lie beside the sums.
    const std::int64_t sums = most > longest ? 2 * sums_ : sums_;
    planes_ = staged_ ? phases_beside(what_) * width_ * results_ : 0;
    const std::int64_t each =
        divide_up(window_floats_ + part_terms * width_ + planes_ + sums + slack, 16) * 16;
    const std::int64_t windows = blocks_.count() * what_.groups;
    // A window that some threads share is filled by each.
    const std::int64_t splits =
        workers_ == 1 ? 1 : std::min(panels_, divide_up(4 * workers_, windows));
    const buffer memory(std::min(workers_, windows * splits) * each);
    struct filled {
      std::int64_t at = -1;
      const float* source = nullptr;
    };
    std::vector<filled> windows_of(static_cast<std::size_t>(workers_));
    for_each_block(threads_, workers_, windows * splits,
                   [&](std::int64_t worker, std::int64_t index) {
                     const std::int64_t split = index % splits, at = index / splits;
                     const std::int64_t group = at % what_.groups, place = at / what_.groups;
                     const block here = blocks_.at(place);
                     float* const own = memory.get() + worker * each;
                     filled& window = windows_of[static_cast<std::size_t>(worker)];
                     if (window.at != at)
                       window = {at, window_.fill(read_.places(here), group, with_, own)};
                     work(here, group, panels_ * split / splits, panels_ * (split + 1) / splits,
                          window.source, own + window_floats_);
                   });
  }

 private:
  // Neighbouring results: the place in the window where they begin, and how many.
  std::vector<segment> tiles_of_block(const block& here) const {
    const std::int64_t line = what_.axes[2].grid, move = read_.move[2];
    std::vector<segment> runs, tiles;
    for (std::int64_t n = 0; n < here.images; ++n)
      for (std::int64_t d = 0; d < here.d1 - here.d0; ++d)
        for (std::int64_t h = 0; h < here.h1 - here.h0; ++h) {
          const std::int64_t start = window_.line(n, d * read_.move[0], h * read_.move[1]);
          if (!runs.empty() && runs.back().source + runs.back().length * move == start)
            runs.back().length += line;
          else
            runs.push_back({start, line});
        }
    for (const segment& run : runs) {
      const std::int64_t parts = divide_up(run.length, with_.line.rows);
      for (std::int64_t i = 0; i < parts; ++i) {
        const std::int64_t from = run.length * i / parts;
        tiles.push_back({run.source + from * move, run.length * (i + 1) / parts - from});
      }
    }
    return tiles;
  }

  void work(const block& here, std::int64_t group, std::int64_t first, std::int64_t last,
            const float* source, float* left) const {
    float* const planes = left + part_terms * width_;
    float* const sums = planes + planes_;
    const std::vector<segment> tiles = tiles_of_block(here);
    const std::int64_t results =
        here.images * (here.d1 - here.d0) * (here.h1 - here.h0) * what_.axes[2].grid;
    const auto beside = static_cast<std::size_t>(phases_beside(what_));
    const std::int64_t plane = width_ * results_;
    for (std::int64_t panel = first; panel < last; ++panel) {
      const std::int64_t rows = rows_of(panel);
      // Lanes without a row compute with whatever is there: let it be numbers.
      if (rows < width_) std::fill(left, left + part_terms * width_, 0.0F);
      for (std::size_t p = 0; p < what_.phases.size(); ++p) {
        chunks(p, group, panel, last, source, tiles, results, left, sums);
        if (!staged_) {
          write(here, group, panel, rows, sums);
          continue;
        }
        float* const turn = planes + static_cast<std::int64_t>(p % beside) * plane;
        with_.transpose(sums, width_, results, rows, turn, results_);
        if (p % beside + 1 == beside)
          write_turns(p + 1 - beside, here, group, panel, rows, planes, plane);
      }
    }
  }

  // sums[result * width_ + row]
  void chunks(std::size_t p, std::int64_t group, std::int64_t panel, std::int64_t last,
              const float* source, const std::vector<segment>& tiles, std::int64_t results,
              float* left, float* sums) const {
    const auto depth = static_cast<std::int64_t>(offsets_[p].size());
    const std::int64_t rows = rows_of(panel);
    if (depth == 0) std::fill(sums, sums + results * width_, 0.0F);
    const auto vectors = static_cast<std::size_t>(divide_up(rows, lanes_));
    for (std::int64_t begin = 0; begin < depth; begin += part_terms) {
      line_task task{};
      task.depth = std::min(part_terms, depth - begin);
      pack_weights(what_, weights(p, group, panel, begin), with_, left, width_);
      task.a = left;
      task.a_row = width_;
      task.offsets = offsets_[p].data() + begin;
      float* const chains = begin < longest ? sums : sums + sums_;
      const bool ends = (begin + part_terms) % longest == 0 || begin + part_terms >= depth;
      task.begun = begin % longest == 0 ? nullptr : chains;
      task.c = ends ? sums : chains;
      task.c_row = width_;
      task.add = ends && begin >= longest;
      const auto& kinds = read_.move[2] == 2 ? with_.line.every_second : with_.line.tile;
      const stretch next = weights_after(p, group, panel, begin + part_terms, last);
      const auto count = static_cast<std::int64_t>(tiles.size());
      for (std::int64_t i = 0; i < count; ++i) {
        const segment& one = tiles[static_cast<std::size_t>(i)];
        next.fetch(i, count);
        task.b = source + one.source;
        kinds[vectors][one.length](task);
        task.c += one.length * width_;
        if (task.begun != nullptr) task.begun += one.length * width_;
      }
    }
  }

  std::int64_t rows_of(std::int64_t panel) const {
    return std::min(width_, what_.rows - panel * width_);
  }

  weight_block weights(std::size_t p, std::int64_t group, std::int64_t panel,
                       std::int64_t begin) const {
    const auto depth = static_cast<std::int64_t>(offsets_[p].size());
    return {what_.phases[p], group, panel * width_,
            rows_of(panel),  begin, std::min(begin + part_terms, depth)};
  }

  // The weights that chunks() packs after those before `begin`.
  stretch weights_after(std::size_t p, std::int64_t group, std::int64_t panel, std::int64_t begin,
                        std::int64_t last) const {
    if (begin >= static_cast<std::int64_t>(offsets_[p].size())) {
      begin = 0;
      if (++p == what_.phases.size()) {
        p = 0;
        if (++panel == last) return {};
      }
    }
    return memory_of(what_, weights(p, group, panel, begin));
  }

  float* plane_of(std::int64_t image, std::int64_t group, std::int64_t row) const {
    return what_.target +
           ((image * what_.groups + group) * what_.rows + row) * volume(what_.target_size);
  }

  void write(const block& here, std::int64_t group, std::int64_t panel, std::int64_t rows,
             const float* sums) const {
    const std::array<std::int64_t, 3>& size = what_.target_size;
    const std::int64_t each = (here.d1 - here.d0) * (here.h1 - here.h0) * size[2];
    for (std::int64_t n = 0; n < here.images; ++n)
      with_.transpose(
          sums + n * each * width_, width_, each, rows,
          plane_of(here.image + n, group, panel * width_) + (here.d0 * size[1] + here.h0) * size[2],
          volume(size));
  }

  void write_turns(std::size_t first, const block& here, std::int64_t group, std::int64_t panel,
                   std::int64_t rows, const float* planes, std::int64_t distance) const {
    const std::int64_t each = (here.d1 - here.d0) * (here.h1 - here.h0) * what_.axes[2].grid;
    for (std::int64_t n = 0; n < here.images; ++n)
      for (std::int64_t row = 0; row < rows; ++row)
        write_lines(what_, with_, first, here, planes + row * results_ + n * each, distance,
                    plane_of(here.image + n, group, panel * width_ + row));
  }

  const gather& what_;
  const kernels& with_;
  const executor& threads_;
  std::int64_t workers_, lanes_;
  std::int64_t width_, panels_;  // rows whose weights lie side by side
  reading read_;
  block_grid blocks_;
  window window_;
  std::int64_t results_;  // of the largest block
  bool staged_;           // results do not lie in the target one after the other
  std::vector<std::vector<std::int64_t>> offsets_;
  std::int64_t window_floats_ = 0, planes_ = 0, sums_ = 0;
};

}  // namespace

bool has_lines(const gather& what, const kernels& with) {
  const std::int64_t lanes = with.single.lanes, line = what.axes[2].grid;
  if (lanes == 1 || line < with.line.rows / 2) return false;
  // There, tiles of gather_run.cpp read the window, and results need no transposition.
  if (line % lanes == 0 && what.rows <= 64) return false;
  std::size_t most = 0;
  std::int64_t terms = 0;
  for (const phase& one : what.phases) {
    most = std::max(most, one.taps.size());
    terms += what.channels * static_cast<std::int64_t>(one.taps.size());
  }
  const std::int64_t used = divide_up(what.rows, lanes) * lanes;
  // Kernels of one place: where an image is small beside its weights, and those are many rows, or
  // are spread over phases, or lie as they are wanted and are read once.
  const std::int64_t image = what.axes[0].grid * what.axes[1].grid * line;
  const bool once = what.weight_row == 1 && what.batch * image <= 256;
  const bool gains = most > 1 || (image < 128 && what.axes[2].step == 1 &&
                                  (what.rows > what.channels || what.phases.size() > 1 || once));
  return gains && terms >= 64 * static_cast<std::int64_t>(what.phases.size()) &&
         8 * what.rows >= 7 * used;
}

void run_lines(const gather& what, const kernels& with, const executor& threads) {
  line_run(what, with, threads).run();
}

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// A column of B is what one result reads: it is scaled by the largest element among all channels
// and taps, which is the largest among the taps of what is largest among the channels.
#include <mutex>

#include "depthwise.hpp"
#include "geometry.hpp"
#include "integers.hpp"
#include "lines.hpp"
#include "shape.hpp"
#include "window.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t many_weights = 256 * 1024;  // bytes: more do not stay in the second cache

// For tiles of AMX, which take 16 rows in the time of one: fewer than half of them take longer than
// vectors do.
constexpr std::int64_t least_rows = 8;

// Of a result; 0 where there are too few rows.
std::int64_t terms_for_tiles(const gather& what) {
  if (what.rows < least_rows) return 0;
  std::size_t taps = 0;
  for (const phase& one : what.phases) taps = std::max(taps, one.taps.size());
  return what.channels * static_cast<std::int64_t>(taps);
}

class scaled_gather {
 public:
  scaled_gather(int bits, const gather& what, const kernels& with, const executor& threads)
      : what_(what),
        with_(with),
        threads_(threads),
        body_(detail::active_integer(terms_for_tiles(what))),
        tiles_(detail::tiles_of(body_, bits)),
        bits_(bits),
        chunk_(tiles_.chunk),
        workers_(static_cast<std::int64_t>(threads.concurrency())),
        line_(what.axes[2].grid),
        row_panels_(divide_up(what.rows, tiles_.rows)),
        plan_(what, tiles_.columns, workers_, row_panels_),
        window_(what, plan_.images, plan_.d, plan_.h),
        places_(window_.places(plan_)),
        weights_(what.phases.size() * static_cast<std::size_t>(what.groups)) {
    for (const phase& one : what.phases) offsets_.push_back(window_.offsets(one));
    threads.run(weights_.size(), [&](std::size_t index) {
      const std::size_t p = index % what.phases.size();
      const auto group = static_cast<std::int64_t>(index / what.phases.size());
      packed_weights& own = weights_[index];
      own.scale = {largest_weights(p, group), bits_};
      (void)panels_of(p, group, tiles_for(own.scale.are_short));
    });
    for (std::size_t p = 0; p < what.phases.size(); ++p)
      if (bytes_of<std::int16_t>(weights_before(terms(p))) > many_weights) together_ = 8;
  }

  void run() {
    const std::int64_t width = tiles_.columns;
    row_length_ = divide_up(plan_.results(), width) * width;
    panel_length_ = chunk_ * std::max(tiles_.column_words(), body_.bits16_short.column_words());
    const std::int64_t bytes =
        bytes_of<float>(window_.size()) +
        bytes_of<std::uint32_t>(plan_.images * extent(plan_.d * plan_.h) + slack) +
        bytes_of<std::uint32_t>(row_length_) + bytes_of<std::int16_t>(together_ * panel_length_) +
        bytes_of<std::int64_t>(together_ * sums_length()) + bytes_of<float>(stage_length());
    const std::int64_t splits = divide_up(row_panels_, plan_.panels);
    const std::int64_t blocks = plan_.count() * what_.groups * splits;
    const workspaces memory(std::min(workers_, blocks), bytes);
    for_each_block(threads_, workers_, blocks, [&](std::int64_t worker, std::int64_t index) {
      const std::int64_t split = index % splits, group = index / splits % what_.groups;
      work(plan_.at(index / splits / what_.groups), group, split, memory.of(worker));
    });
  }

 private:
  // Of one group and phase: the scales of rows, and panels of these, chunk by chunk, for tiles of
  // short integers and for others. What a block of results reads decides which it takes.
  struct packed_weights {
    detail::scales scale{{}, 16};
    struct {
      std::once_flag packed;
      buffer panels;
    } others, shorts;
  };

  // Columns of short integers take longer to pack: several panels of rows make up for that.
  const detail::kernels_scaled& tiles_for(bool are_short) const {
    return detail::tiles_of(body_, bits_, are_short && row_panels_ > 1);
  }

  packed_weights& weights_of(std::size_t p, std::int64_t group) const {
    return weights_[static_cast<std::size_t>(group) * what_.phases.size() + p];
  }

  const std::int16_t* panels_of(std::size_t p, std::int64_t group,
                                const detail::kernels_scaled& tiles) const {
    packed_weights& own = weights_of(p, group);
    auto& part = &tiles == &tiles_ ? own.others : own.shorts;
    std::call_once(part.packed, [&] { part.panels = packed(p, group, own.scale, tiles); });
    return reinterpret_cast<const std::int16_t*>(part.panels.get());
  }

  buffer packed(std::size_t p, std::int64_t group, const detail::scales& scale,
                const detail::kernels_scaled& tiles) const {
    const std::int64_t depth = terms(p);
    std::vector<std::int64_t> order;
    for (std::int64_t c = 0; c < what_.channels; ++c)
      for (const tap& t : what_.phases[p].taps)
        order.push_back(c * what_.weight_channel + t.weight);
    const float* const from = what_.weights + group * what_.weight_group;
    buffer memory(bytes_of<std::int16_t>(weights_before(depth)) / std::int64_t{sizeof(float)});
    auto* const panels = reinterpret_cast<std::int16_t*>(memory.get());
    // Rows that are neighbours are read some terms at a time, for all panels.
    const std::int64_t step =
        what_.weight_row == 1 ? std::max<std::int64_t>(8, tiles_.terms) : chunk_;
    for (std::int64_t begin = 0; begin < depth; begin += chunk_) {
      const std::int64_t end = std::min(begin + chunk_, depth);
      for (std::int64_t k = begin; k < end; k += step)
        for (std::int64_t i = 0; i < row_panels_; ++i) {
          detail::panel<float, std::int16_t> part;
          part.from = from + row_of(i) * what_.weight_row;
          part.lane_stride = what_.weight_row;
          part.step = 1;
          part.order = order.data() + k;
          part.depth = std::min(step, end - k);
          part.lanes = static_cast<int>(row_of(i + 1) - row_of(i));
          part.width = tiles_.rows;
          part.scale = scale.up.data() + row_of(i);
          part.to = panels + weights_at(p, begin, i) + (k - begin) * tiles_.row_words();
          tiles.pack_rows(part);
        }
    }
    return memory;
  }

  // Of each row.
  std::vector<std::uint32_t> largest_weights(std::size_t p, std::int64_t group) const {
    const std::int64_t depth = terms(p);
    const float* const from = what_.weights + group * what_.weight_group;
    std::vector<std::uint32_t> largest(static_cast<std::size_t>(what_.rows));
    if (depth == what_.weight_row && depth == what_.channels * what_.weight_channel) {
      body_.largest({from, depth, 1, depth, what_.rows}, largest.data());
      return largest;
    }
    // Else rows of a channel are neighbours: among the channels first.
    std::vector<std::uint32_t> each(static_cast<std::size_t>(what_.rows * what_.weight_row));
    body_.largest({from, 1, what_.weight_channel, what_.channels, what_.rows * what_.weight_row},
                  each.data());
    for (std::int64_t row = 0; row < what_.rows; ++row)
      for (const tap& t : what_.phases[p].taps)
        largest[static_cast<std::size_t>(row)] =
            std::max(largest[static_cast<std::size_t>(row)],
                     each[static_cast<std::size_t>(row * what_.weight_row + t.weight)]);
    return largest;
  }

  std::int64_t terms(std::size_t p) const { return static_cast<std::int64_t>(offsets_[p].size()); }
  std::int64_t padded(std::int64_t depth) const {
    const std::int64_t most = std::max(tiles_.terms, body_.bits16_short.terms);
    return divide_up(depth, most) * most;
  }
  // Rows are dealt evenly to the panels.
  std::int64_t row_of(std::int64_t panel) const { return what_.rows * panel / row_panels_; }
  // Where digits lie: those of terms before this one, and panel i of the chunk that begins here.
  std::int64_t weights_before(std::int64_t begin) const {
    return padded(begin) * row_panels_ * tiles_.row_words();
  }
  std::int64_t weights_at(std::size_t p, std::int64_t begin, std::int64_t i) const {
    const std::int64_t depth = padded(std::min(chunk_, terms(p) - begin));
    return weights_before(begin) + i * depth * tiles_.row_words();
  }

  std::int64_t sums_length() const { return plan_.panels * tiles_.rows * tiles_.columns; }
  std::int64_t stage_length() const {
    return plan_.staged ? what_.write_step[2] * plan_.panels * tiles_.rows * row_length_ : 0;
  }
  // Places of the window in one image, where a block has so many lines.
  std::int64_t extent(std::int64_t lines) const {
    return window_.is_source() ? lines * line_ : window_.channel();
  }

  // One block of results, for the rows of one split.
  void work(const block& here, std::int64_t group, std::int64_t split, float* memory) const {
    const float* const source = window_.fill(here, group, with_, memory);
    (void)take<float>(memory, window_.size());
    auto* const among_channels =
        take<std::uint32_t>(memory, plan_.images * extent(plan_.d * plan_.h) + slack);
    const std::int64_t lines = (here.d1 - here.d0) * (here.h1 - here.h0);
    for (std::int64_t n = 0; n < here.images; ++n)
      body_.largest(
          {source + window_.line(n, 0, 0), 1, window_.channel(), what_.channels, extent(lines)},
          among_channels + n * extent(lines));
    auto* const largest = take<std::uint32_t>(memory, row_length_);
    space own{};
    own.digits = take<std::int16_t>(memory, together_ * panel_length_);
    own.sums = take<std::int64_t>(memory, together_ * sums_length());
    auto* const stage = memory;
    part_of_work part{};
    part.group = group;
    part.first = split * plan_.panels;
    part.last = std::min(part.first + plan_.panels, row_panels_);
    part.results = here.images * lines * line_;
    part.source = source;
    const std::size_t beside = static_cast<std::size_t>(phases_beside(what_));
    const std::int64_t plane = plan_.panels * tiles_.rows * row_length_;
    for (std::size_t p = 0; p < what_.phases.size(); ++p) {
      part.c = stage + static_cast<std::int64_t>(p % beside) * plane;
      part.c_row = row_length_;
      if (!plan_.staged) {
        part.c_row = volume(what_.target_size);
        part.c =
            what_.target +
            ((here.image * what_.groups + group) * what_.rows + row_of(part.first)) * part.c_row +
            (here.d0 * what_.axes[1].grid + here.h0) * line_;
      }
      find_largest(p, here, among_channels, largest);
      const detail::scales scale({largest, static_cast<std::size_t>(part.results)}, bits_);
      multiply(p, part, scale, own);
      if (plan_.staged && p % beside + 1 == beside) write(p + 1 - beside, here, part, stage, plane);
    }
  }

  void find_largest(std::size_t p, const block& here, const std::uint32_t* among_channels,
                    std::uint32_t* largest) const {
    const auto taps = static_cast<std::int64_t>(what_.phases[p].taps.size());
    const std::int64_t each = extent((here.d1 - here.d0) * (here.h1 - here.h0));
    for (std::int64_t n = 0; n < here.images; ++n)
      for (std::int64_t d = 0; d < here.d1 - here.d0; ++d)
        for (std::int64_t h = 0; h < here.h1 - here.h0; ++h, largest += line_)
          body_.largest_seen(among_channels + n * each + window_.line(0, d, h), offsets_[p].data(),
                             taps, line_, largest);
  }

  struct space {
    std::int16_t* digits;
    std::int64_t* sums;
  };
  struct part_of_work {
    std::int64_t group, first, last;  // panels of rows
    std::int64_t results;
    const float* source;
    float* c;
    std::int64_t c_row;
  };

  // c[row * c_row + result] of one phase.
  void multiply(std::size_t p, const part_of_work& part, const detail::scales& scale,
                const space& own) const {
    const std::int64_t width = tiles_.columns, depth = terms(p);
    const std::int64_t rows = row_of(part.last) - row_of(part.first);
    const detail::scales& rows_scale = weights_of(p, part.group).scale;
    const detail::kernels_scaled& tiles = tiles_for(rows_scale.are_short && scale.are_short);
    const std::int16_t* const weights = panels_of(p, part.group, tiles);
    const std::int64_t panels = divide_up(part.results, width);
    // Sums of more terms than an int64 holds are added to longer ones, some whole chunks at a time.
    const std::int64_t most = detail::most_terms_of(bits_) / chunk_ * chunk_;
    std::vector<detail::wide> far;
    for (std::int64_t j0 = 0; j0 < panels; j0 += together_) {
      const std::int64_t j1 = std::min(panels, j0 + together_);
      if (depth == 0) std::fill(own.sums, own.sums + together_ * sums_length(), 0);
      detail::tile<std::int16_t, std::int64_t> t;
      t.a_step = tiles_.rows;
      t.b_step = t.c_row = width;
      for (std::int64_t begin = 0; begin < depth; begin += chunk_) {
        t.depth = std::min(chunk_, depth - begin);
        t.first = begin % most == 0;
        for (std::int64_t j = j0; j < j1; ++j)
          tiles.pack_columns(
              panel_of(p, part, scale, begin, j, own.digits + (j - j0) * panel_length_));
        for (std::int64_t i = part.first; i < part.last; ++i) {
          t.rows = static_cast<int>(row_of(i + 1) - row_of(i));
          t.a = weights + weights_at(p, begin, i);
          for (std::int64_t j = j0; j < j1; ++j) {
            t.columns = static_cast<int>(std::min(width, part.results - j * width));
            t.b = own.digits + (j - j0) * panel_length_;
            t.c = own.sums + (j - j0) * sums_length() + (row_of(i) - row_of(part.first)) * width;
            tiles.multiply(t);
          }
        }
        const std::int64_t done = begin + t.depth;
        if (depth > most && (done % most == 0 || done == depth)) {
          far.resize(static_cast<std::size_t>(together_ * sums_length()));
          for (std::size_t at = 0; at < far.size(); ++at)
            far[at] = (done <= most ? 0 : far[at]) + own.sums[at];
        }
      }
      for (std::int64_t j = j0; j < j1; ++j) {
        const std::int64_t columns = std::min(width, part.results - j * width);
        const double* row_scale = rows_scale.down.data() + row_of(part.first);
        const double* column_scale = scale.down.data() + j * width;
        if (depth == 0) {
          for (std::int64_t i = 0; i < rows; ++i)
            std::fill_n(part.c + i * part.c_row + j * width, columns, 0.0F);
        } else if (far.empty()) {
          detail::scale_back(body_, {own.sums + (j - j0) * sums_length(), width, row_scale,
                                     column_scale, part.c + j * width, part.c_row, rows, columns});
        } else {
          for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t k = 0; k < columns; ++k)
              part.c[i * part.c_row + j * width + k] = detail::scaled_back(
                  far[static_cast<std::size_t>((j - j0) * sums_length() + i * width + k)],
                  row_scale[i] * column_scale[k]);
        }
      }
    }
  }

  // Columns j * width ... of the chunk that begins there.
  detail::panel<float, std::int16_t> panel_of(std::size_t p, const part_of_work& part,
                                              const detail::scales& scale, std::int64_t begin,
                                              std::int64_t j, std::int16_t* to) const {
    const std::int64_t first = j * tiles_.columns;
    detail::panel<float, std::int16_t> digits;
    digits.from = part.source;
    digits.step = 1;
    digits.depth = std::min(chunk_, terms(p) - begin);
    digits.lanes = static_cast<int>(std::min<std::int64_t>(tiles_.columns, part.results - first));
    digits.width = tiles_.columns;
    digits.order = offsets_[p].data() + begin;
    digits.scale = scale.up.data() + first;
    digits.lane_at = places_.data() + first;
    digits.to = to;
    return digits;
  }

  // From the stage to the target.
  void write(std::size_t p, const block& here, const part_of_work& part, const float* stage,
             std::int64_t plane) const {
    const std::int64_t each = (here.d1 - here.d0) * (here.h1 - here.h0) * line_;
    const std::int64_t first = row_of(part.first), rows = row_of(part.last) - first;
    const std::array<std::int64_t, 3>& size = what_.target_size;
    for (std::int64_t n = 0; n < here.images; ++n)
      for (std::int64_t row = 0; row < rows; ++row) {
        const float* const from = stage + row * row_length_ + n * each;
        float* const to =
            what_.target +
            (((here.image + n) * what_.groups + part.group) * what_.rows + first + row) *
                volume(size);
        if (volume(what_.write_step) == 1)
          std::copy_n(from, each, to + (here.d0 * size[1] + here.h0) * size[2]);
        else
          write_lines(what_, with_, p, here, from, plane, to);
      }
  }

  const gather& what_;
  const kernels& with_;
  const executor& threads_;
  const detail::kernels_integer& body_;
  const detail::kernels_scaled& tiles_;
  int bits_;
  std::int64_t chunk_, workers_, line_, row_panels_;
  block_plan plan_;
  window window_;
  std::vector<std::int64_t> places_;                // of results in the window
  std::vector<std::vector<std::int64_t>> offsets_;  // per phase, of the terms in the window
  mutable std::vector<packed_weights> weights_;     // of each group, its phases
  std::int64_t together_ = 1;  ///< panels of columns that meet a chunk of the weights in turn
  std::int64_t row_length_ = 0, panel_length_ = 0;
};

}  // namespace

void integer_gather(int bits, const gather& what, const kernels& with, const executor& threads) {
  if (what.batch * what.groups * what.rows * volume(what.target_size) == 0) return;
  if (has_planes(what)) return run_planes_of_integers(bits, what, with, threads);
  scaled_gather(bits, what, with, threads).run();
}

}  // namespace potl::numeric::conv

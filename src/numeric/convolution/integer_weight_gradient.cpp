// SPDX-License-Identifier: Apache-2.0
// Rows of A are channels of dy, columns of B channels of x seen through a tap, terms the results of
// all images. Each worker adds up the products of the blocks of terms that it takes. Of a depthwise
// convolution they are not packed: a plane of dy slides over its window.
#include <cmath>
#include <cstring>

#include "channels.hpp"
#include "depthwise.hpp"
#include "geometry.hpp"
#include "grid.hpp"
#include "integers.hpp"
#include "shape.hpp"
#include "window.hpp"

namespace potl::numeric::conv {
namespace {

constexpr std::int64_t most_of_a_plane = std::int64_t{1} << 22;  // products of 16 bits in a double
constexpr std::int64_t most_bytes = std::int64_t{256} << 20;  // of sums, where a worker has fewer

// What reads dy where it lies.
convolution own_places(const convolution& g) {
  convolution out;
  out.batch = g.batch;
  out.in_channels = out.out_channels = g.out_channels;
  out.groups = g.groups;
  out.input = g.output();
  return out;
}

class scaled_weight_gradient {
 public:
  scaled_weight_gradient(int bits, const convolution& g, const float* x, const float* dy, float* dw,
                         const kernels& with, const executor& threads)
      : g_(g),
        x_(x),
        dy_(dy),
        dw_(dw),
        with_(with),
        threads_(threads),
        body_(detail::active_integer(g.batch * volume(g.output()))),
        bits_(bits),
        chunk_(detail::tiles_of(body_, bits).chunk),
        rows_(g.out_channels / g.groups),
        all_(g.in_channels / g.groups * volume(g.kernel)),
        terms_(g.batch * volume(g.output())),
        from_x_(forward_gather(g, x, nullptr, nullptr)),
        from_dy_(forward_gather(own_places(g), dy, nullptr, nullptr)),
        row_scale_(row_scales()),
        column_scale_(column_scales()),
        row_panels_(divide_up(rows_, detail::tiles_of(body_, bits).rows)),
        // Columns of short integers take longer to pack: several panels of rows make up for that.
        tiles_(detail::tiles_of(
            body_, bits, row_scale_.are_short && column_scale_.are_short && row_panels_ > 1)),
        sums_row_(divide_up(all_, tiles_.columns) * tiles_.columns),
        plan_(from_x_, tiles_.columns, 1, 1),
        x_window_(from_x_, plan_.images, plan_.d, plan_.h),
        dy_window_(from_dy_, plan_.images, plan_.d, plan_.h),
        x_places_(x_window_.places(plan_)),
        dy_places_(dy_window_.places(plan_)) {
    column_offsets_ = x_window_.offsets(from_x_.phases[0]);
    for (std::int64_t row = 0; row < rows_; ++row)
      row_offsets_.push_back(dy_window_.offset(row, from_dy_.phases[0].taps[0]));
  }

  void run() {
    digits_of_rows_ = row_panels_ * chunk_ * tiles_.row_words();
    const bool slides = is_depthwise(g_) && rows_ <= 2 && bits_ == 16 && !x_window_.is_source() &&
                        x_window_.size() <= most_of_a_plane;
    const std::int64_t bytes =
        bytes_of<float>(x_window_.size()) +
        (slides ? bytes_of<float>(x_window_.size()) + bytes_of<float>(run_of(plan_.h))
                : bytes_of<std::int16_t>(digits_of_rows_) +
                      bytes_of<std::int16_t>(chunk_ * tiles_.column_words()));
    const std::int64_t size = g_.out_channels * sums_row_, blocks = plan_.count() * g_.groups;
    const std::int64_t fitting = most_bytes / (size * std::int64_t{sizeof(std::int64_t)});
    const auto workers = static_cast<std::int64_t>(threads_.concurrency());
    const std::int64_t used = std::min({workers, blocks, std::max<std::int64_t>(fitting, 1)});
    const workspaces memory(used, bytes);
    std::vector<part_of_sums> parts(static_cast<std::size_t>(used));
    for_each_block(threads_, used, blocks, [&](std::int64_t worker, std::int64_t index) {
      part_of_sums& part = parts[static_cast<std::size_t>(worker)];
      part.near.resize(static_cast<std::size_t>(size));
      const block here = plan_.at(index / g_.groups);
      slides ? slide(here, index % g_.groups, memory.of(worker), part)
             : work(here, index % g_.groups, memory.of(worker), part);
    });
    write(parts);
  }

 private:
  struct part_of_sums {
    std::vector<std::int64_t> near;
    std::vector<detail::wide> far;  ///< what was in `near` when it was full
    std::int64_t terms = 0;         ///< at most, of a sum in `near`

    void move_far() {
      far.resize(near.size());
      for (std::size_t i = 0; i < near.size(); ++i) far[i] += near[i];
      std::fill(near.begin(), near.end(), 0);
      terms = 0;
    }
  };

  detail::scales row_scales() const {
    const std::int64_t plane = volume(from_dy_.target_size), count = g_.out_channels;
    std::vector<std::uint32_t> largest(static_cast<std::size_t>(count));
    threads_.run(static_cast<std::size_t>(count), [&](std::size_t task) {
      const auto channel = static_cast<std::int64_t>(task);
      std::uint32_t& most = largest[task];
      for (std::int64_t n = 0; n < g_.batch; ++n) {
        std::uint32_t here = 0;
        body_.largest({dy_ + (n * count + channel) * plane, plane, 1, plane, 1}, &here);
        most = std::max(most, here);
      }
    });
    return {largest, bits_};
  }

  // Of what is largest among the images.
  detail::scales column_scales() const {
    const std::int64_t plane = volume(g_.input), taps = volume(g_.kernel);
    convolution one = g_;
    one.batch = 1;
    std::vector<std::uint32_t> largest(static_cast<std::size_t>(g_.in_channels * taps));
    std::vector<float> images(static_cast<std::size_t>(g_.in_channels * plane));
    threads_.run(static_cast<std::size_t>(g_.in_channels), [&](std::size_t task) {
      const auto channel = static_cast<std::int64_t>(task);
      std::vector<std::uint32_t> bits(static_cast<std::size_t>(plane));
      body_.largest({x_ + channel * plane, 1, g_.in_channels * plane, g_.batch, plane},
                    bits.data());
      std::memcpy(images.data() + channel * plane, bits.data(),
                  bits.size() * sizeof(std::uint32_t));
      std::vector<float> seen(static_cast<std::size_t>(volume(from_x_.target_size)));
      const auto count = static_cast<std::int64_t>(seen.size());
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        see_channel(one, images.data(), channel, tap, seen.data());
        body_.largest({seen.data(), count, 1, count, 1}, largest.data() + channel * taps + tap);
      }
    });
    return {largest, bits_};
  }

  std::int64_t row_of(std::int64_t panel) const { return rows_ * panel / row_panels_; }

  // One block of terms, of one group.
  void work(const block& here, std::int64_t group, float* memory, part_of_sums& part) const {
    const float* const x = x_window_.fill(here, group, with_, memory);
    const float* const dy = dy_window_.fill(here, group, with_, nullptr);
    (void)take<float>(memory, x_window_.size());
    auto* const digits = take<std::int16_t>(memory, digits_of_rows_);
    auto* const column_digits = reinterpret_cast<std::int16_t*>(memory);
    const std::int64_t terms =
        here.images * (here.d1 - here.d0) * (here.h1 - here.h0) * from_x_.axes[2].grid;
    std::int64_t* const sums = part.near.data() + group * rows_ * sums_row_;
    detail::tile<std::int16_t, std::int64_t> t;
    t.a_step = tiles_.rows;
    t.b_step = tiles_.columns;
    t.c_row = sums_row_;
    t.first = false;
    for (std::int64_t begin = 0; begin < terms; begin += chunk_) {
      t.depth = std::min(chunk_, terms - begin);
      if (part.terms + t.depth > detail::most_terms_of(bits_)) part.move_far();
      part.terms += t.depth;
      const std::int64_t words =
          divide_up(t.depth, tiles_.terms) * tiles_.terms * tiles_.row_words();
      for (std::int64_t i = 0; i < row_panels_; ++i) {
        const std::int64_t row = row_of(i), count = row_of(i + 1) - row;
        tiles_.pack_rows(digits_of(dy, {dy_places_.data() + begin, t.depth},
                                   {row_offsets_.data() + row, count}, tiles_.rows,
                                   row_scale_.up.data() + group * rows_ + row, digits + i * words));
      }
      for (std::int64_t column = 0; column < all_; column += tiles_.columns) {
        const std::int64_t count = std::min<std::int64_t>(tiles_.columns, all_ - column);
        tiles_.pack_columns(digits_of(
            x, {x_places_.data() + begin, t.depth}, {column_offsets_.data() + column, count},
            tiles_.columns, column_scale_.up.data() + group * all_ + column, column_digits));
        t.columns = static_cast<int>(count);
        t.b = column_digits;
        for (std::int64_t i = 0; i < row_panels_; ++i) {
          t.rows = static_cast<int>(row_of(i + 1) - row_of(i));
          t.a = digits + i * words;
          t.c = sums + row_of(i) * sums_row_ + column;
          tiles_.multiply(t);
        }
      }
    }
  }

  // So many lines of results in a window, and what lies between them, in whole vectors.
  std::int64_t run_of(std::int64_t lines) const {
    constexpr std::int64_t vector = 16;
    const std::int64_t last = (lines - 1) * x_window_.line(0, 0, 1) + from_x_.axes[2].grid;
    return divide_up(last, vector) * vector;
  }

  // One block of terms of a channel and its rows.
  void slide(const block& here, std::int64_t channel, float* memory, part_of_sums& part) const {
    const std::int64_t lines = here.h1 - here.h0, line = from_x_.axes[2].grid;
    const std::int64_t terms = here.images * (here.d1 - here.d0) * lines * line;
    if (part.terms + terms > detail::most_terms_of(bits_)) part.move_far();
    part.terms += terms;
    const float* const window = x_window_.fill(here, channel, with_, memory);
    (void)take<float>(memory, x_window_.size());
    float* const x = take<float>(memory, x_window_.size());
    float* const run = memory;
    const double* const down = column_scale_.down.data() + channel * all_;
    std::vector<bool> done(static_cast<std::size_t>(all_));
    // Taps that see the same largest element have the same integers.
    for (std::int64_t first = 0; first < all_; ++first) {
      if (done[static_cast<std::size_t>(first)] || std::isnan(down[first])) continue;
      std::vector<std::int64_t> taps, places;
      for (std::int64_t tap = first; tap < all_; ++tap)
        if (down[tap] == down[first]) {
          taps.push_back(tap);
          places.push_back(column_offsets_[static_cast<std::size_t>(tap)]);
          done[static_cast<std::size_t>(tap)] = true;
        }
      // What is between lines is multiplied with 0, and must be finite as all within the limit is.
      const std::int64_t filled = x_window_.line(here.images, 0, 0);
      round_here(window, filled, down[first], x);
      std::fill_n(x + filled, x_window_.size() - x_window_.line(plan_.images, 0, 0), 0.0F);
      for (std::int64_t row = channel * rows_; row < (channel + 1) * rows_; ++row)
        add_dots(here, row, column_scale_.up[static_cast<std::size_t>(channel * all_ + first)],
                 taps, places, x, run, part.near.data() + row * sums_row_);
    }
  }

  // Each tap's place in x, and sums of integers to which the block adds.
  void add_dots(const block& here, std::int64_t row, double x_up,
                const std::vector<std::int64_t>& taps, const std::vector<std::int64_t>& places,
                const float* x, float* run, std::int64_t* to) const {
    const std::array<std::int64_t, 3>& size = from_x_.target_size;
    const double down = row_scale_.down[static_cast<std::size_t>(row)];
    if (std::isnan(down)) return;
    const double up = row_scale_.up[static_cast<std::size_t>(row)] * x_up;
    const std::int64_t lines = here.h1 - here.h0, pitch = x_window_.line(0, 0, 1);
    std::fill_n(run, run_of(lines), 0.0F);
    std::vector<double> sums(taps.size());
    for (std::int64_t n = 0; n < here.images; ++n)
      for (std::int64_t d = 0; d < here.d1 - here.d0; ++d) {
        const float* const dy =
            dy_ + (((here.image + n) * g_.out_channels + row) * size[0] + here.d0 + d) * size[1] *
                      size[2];
        for (std::int64_t h = 0; h < lines; ++h)
          round_here(dy + (here.h0 + h) * size[2], size[2], down, run + h * pitch);
        std::fill(sums.begin(), sums.end(), 0.0);
        with_.dots({run_of(lines), run, x + x_window_.line(n, d, 0), places.data(),
                    static_cast<std::int64_t>(taps.size()), sums.data()});
        for (std::size_t i = 0; i < taps.size(); ++i)
          to[taps[i]] += static_cast<std::int64_t>(sums[i] * up);
      }
  }

  void round_here(const float* from, std::int64_t count, double down, float* to) const {
    const double grid = 0x1.8p52 * down;
    with_.round_to_grid(from, count, grid, limit_of(grid, bits_), to);
  }

  struct some_places {
    const std::int64_t* at;
    std::int64_t count;
  };
  static detail::panel<float, std::int16_t> digits_of(const float* from, some_places terms,
                                                      some_places lanes, int width,
                                                      const double* scale, std::int16_t* to) {
    detail::panel<float, std::int16_t> part;
    part.from = from;
    part.lane_stride = 0;
    part.step = 1;
    part.depth = terms.count;
    part.lanes = static_cast<int>(lanes.count);
    part.width = width;
    part.order = terms.at;
    part.scale = scale;
    part.lane_at = lanes.at;
    part.to = to;
    return part;
  }

  void write(std::vector<part_of_sums>& parts) const {
    const bool fits = terms_ <= detail::most_terms_of(bits_);
    threads_.run(static_cast<std::size_t>(g_.out_channels), [&](std::size_t task) {
      const auto row = static_cast<std::int64_t>(task);
      const double* const column_scale = column_scale_.down.data() + row / rows_ * all_;
      const double& row_scale = row_scale_.down[task];
      float* const to = dw_ + row * all_;
      if (fits) {
        std::vector<std::int64_t> sums(static_cast<std::size_t>(all_));
        add_row(parts, row, sums);
        return detail::scale_back(body_,
                                  {sums.data(), all_, &row_scale, column_scale, to, all_, 1, all_});
      }
      std::vector<detail::wide> sums(static_cast<std::size_t>(all_));
      add_row(parts, row, sums);
      for (std::int64_t j = 0; j < all_; ++j)
        to[j] = detail::scaled_back(sums[static_cast<std::size_t>(j)], row_scale * column_scale[j]);
    });
  }

  template <class Sum>
  void add_row(const std::vector<part_of_sums>& parts, std::int64_t row,
               std::vector<Sum>& to) const {
    const auto at = static_cast<std::size_t>(row * sums_row_);
    for (const part_of_sums& part : parts)
      for (std::size_t j = 0; j < to.size(); ++j) {
        if (!part.near.empty()) to[j] += part.near[at + j];
        if (!part.far.empty()) to[j] += static_cast<Sum>(part.far[at + j]);
      }
  }

  const convolution& g_;
  const float *x_, *dy_;
  float* dw_;
  const kernels& with_;
  const executor& threads_;
  const detail::kernels_integer& body_;
  int bits_;
  std::int64_t chunk_, rows_, all_, terms_;
  gather from_x_, from_dy_;
  detail::scales row_scale_, column_scale_;
  std::int64_t row_panels_;
  const detail::kernels_scaled& tiles_;
  std::int64_t sums_row_;  ///< columns, filled up to whole panels
  block_plan plan_;
  window x_window_, dy_window_;
  std::vector<std::int64_t> x_places_, dy_places_;  // of terms
  std::vector<std::int64_t> column_offsets_, row_offsets_;
  std::int64_t digits_of_rows_ = 0;
};

}  // namespace

void integer_weight_gradient(int bits, const convolution& g, const float* x, const float* dy,
                             float* dw, const kernels& with, const executor& threads) {
  if (g.out_channels * g.in_channels == 0) return;
  scaled_weight_gradient(bits, g, x, dy, dw, with, threads).run();
}

}  // namespace potl::numeric::conv

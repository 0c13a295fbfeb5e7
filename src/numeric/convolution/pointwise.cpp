// SPDX-License-Identifier: Apache-2.0
#include "pointwise.hpp"

#include <algorithm>

#include <potl/numeric/detail/matrix.hpp>
#include <potl/numeric/gemm.hpp>

#include "geometry.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {
namespace {

// target = weights * source, per image: the terms of an element are those of the convolution, in
// its order. A strip of all channels serves all rows of weights: the first of them read it where it
// lies, on as many pages as there are channels and in few sets of the first cache, and leave a copy
// that the others read in order, while the next strip is on its way.
class strip_run {
 public:
  strip_run(std::int64_t images, matrix<const float> weights, matrix<const float> source,
            matrix<float> target, const kernels& with, const executor& threads)
      : images_(images),
        weights_(weights),
        source_(source),
        target_(target),
        with_(with),
        threads_(threads),
        lanes_(with.single.lanes),
        width_(most_line_vectors * lanes_),
        tiles_(divide_up(weights.rows, with.rows.rows)),
        strips_(divide_up(source.columns, width_)) {}

  void run() {
    copy_weights();
    const auto workers = static_cast<std::int64_t>(threads_.concurrency());
    // The last strip may overlap the one before: both are of one task.
    const std::int64_t parts =
        workers == 1 ? 1
                     : std::clamp<std::int64_t>(8 * workers / images_, 1,
                                                std::max<std::int64_t>(1, strips_ / 2));
    const std::int64_t strip_floats = std::min(longest, weights_.columns) * width_;
    const buffer memory(workers * strip_floats);
    for_each_block(threads_, workers, images_ * parts, [&](std::int64_t worker, std::int64_t task) {
      const std::int64_t part = task % parts, end = strips_ * (part + 1) / parts;
      for (std::int64_t strip = strips_ * part / parts; strip < end; ++strip)
        multiply(task / parts, strip, memory.get() + worker * strip_floats);
    });
  }

 private:
  // Rows of terms at distances that share neither cache sets nor the term where a line ends: one
  // new line for each term is easier to wait for than as many as there are rows all at once.
  void copy_weights() {
    const std::int64_t rows = weights_.rows, depth = weights_.columns;
    const std::int64_t row = divide_up(depth, 16) * 16 + 17;
    copy_ = buffer(rows * row);
    if (weights_.column_stride == 1)
      for (std::int64_t i = 0; i < rows; ++i)
        std::copy_n(weights_.data + i * weights_.row_stride, depth, copy_.get() + i * row);
    else
      with_.transpose(weights_.data, weights_.column_stride, depth, rows, copy_.get(), row);
    weights_ = {copy_.get(), rows, depth, row, 1};
  }

  std::int64_t first_row(std::int64_t tile) const { return weights_.rows * tile / tiles_; }

  std::int64_t place_of(std::int64_t strip) const {
    const std::int64_t left = source_.columns - strip * width_;
    if (left >= width_) return strip * width_;
    return source_.columns - divide_up(left, lanes_) * lanes_;
  }

  // A strip of all channels. One that overlaps the strip before comes after it.
  void multiply(std::int64_t image, std::int64_t strip, float* copy) const {
    const std::int64_t places = source_.columns, place = place_of(strip);
    const std::int64_t vectors = std::min(width_, places - place) / lanes_;
    const float* const from = source_.data + image * source_.rows * places;
    float* const to = target_.data + image * target_.rows * places + place;
    // After an image comes the next.
    const bool last = strip + 1 == strips_;
    const float* const next = last ? from + source_.rows * places : from + place_of(strip + 1);
    const std::int64_t lines = last && image + 1 == images_ ? 0 : width_ / 16;
    for (std::int64_t begin = 0; begin < weights_.columns; begin += longest) {
      const row_run run{weights_.data + begin, std::min(longest, weights_.columns - begin)};
      rows_task task{};
      task.runs = &run;
      task.count = 1;
      task.a_row = weights_.row_stride;
      task.b = from + begin * places + place;
      task.b_row = places;
      task.copy = copy;
      task.c_row = places;
      task.add = begin > 0;
      std::int64_t line = 0;
      for (std::int64_t tile = 0; tile < tiles_; ++tile) {
        const std::int64_t row = first_row(tile);
        task.a = row * weights_.row_stride;
        task.c = to + row * places;
        // Some of the tiles that read the copy ask for a line of all channels each.
        const bool asks = line < lines && tile == 1 + line * (tiles_ - 1) / lines;
        task.next = asks ? next + begin * places + line * 16 : task.b;
        task.next_row = asks ? places : 0;
        if (asks) ++line;
        const auto& tiles = tile == 0 ? with_.rows.copying : with_.rows.tile;
        tiles[vectors][first_row(tile + 1) - row](task);
        task.b = copy;
        task.b_row = vectors * lanes_;
      }
    }
  }

  std::int64_t images_;
  matrix<const float> weights_, source_;
  matrix<float> target_;
  const kernels& with_;
  const executor& threads_;
  std::int64_t lanes_, width_, tiles_, strips_;
  buffer copy_;
};

// target = weights * source, per image: the terms of an element are those of the convolution, in
// its order.
void multiply(std::int64_t images, const matrix<const float>& weights,
              const matrix<const float>& source, const matrix<float>& target, const kernels& with,
              const executor& threads) {
  // More rows pay for a copy of all of the source.
  constexpr std::int64_t few_rows = 128;
  if (weights.rows <= few_rows && with.single.lanes > 1)
    return strip_run(images, weights, source, target, with, threads).run();
  for_each_block(threads, static_cast<std::int64_t>(threads.concurrency()), images,
                 [&](std::int64_t, std::int64_t n) {
                   matrix<const float> from = source;
                   matrix<float> to = target;
                   from.data += n * from.rows * from.columns;
                   to.data += n * to.rows * to.columns;
                   gemm(arithmetic::ord32, weights, from, to, inline_executor());
                 });
}

template <class Element>
matrix<Element> channels_of(const convolution& g, Element* image, std::int64_t channels) {
  const std::int64_t places = volume(g.input);
  return {image, channels, places, places, 1};
}

}  // namespace

bool is_product(const convolution& g, const kernels& with, const executor& threads) {
  const auto workers = static_cast<std::int64_t>(threads.concurrency());
  const bool shared = g.batch % workers == 0 || g.batch >= 4 * workers;
  return with.single.lanes >= 16 && is_pointwise(g) && g.groups == 1 && shared &&
         volume(g.input) >= 100 && std::min(g.in_channels, g.out_channels) >= 64;
}

void pointwise(const convolution& g, const float* x, const float* w, float* y, const kernels& with,
               const executor& threads) {
  multiply(g.batch, {w, g.out_channels, g.in_channels, g.in_channels, 1},
           channels_of(g, x, g.in_channels), channels_of(g, y, g.out_channels), with, threads);
}

void pointwise_input_gradient(const convolution& g, const float* dy, const float* w, float* dx,
                              const kernels& with, const executor& threads) {
  multiply(g.batch, {w, g.in_channels, g.out_channels, 1, g.in_channels},
           channels_of(g, dy, g.out_channels), channels_of(g, dx, g.in_channels), with, threads);
}

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// Convolutions are products of matrices, of which one holds an element many times. A vector over
// all columns would leave a convolution of the whole batch. One that is a product of two, such as
// of a number for the image and one for the channel, sums the images before anything is convolved.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/projection.hpp>

#include "freivalds_bounds.hpp"
#include "freivalds_patches.hpp"

namespace potl::checks {
namespace {

using namespace freivalds_detail;
using numeric::convolution;
using numeric::executor;
using numeric::matrix;
using numeric::row_major;
using doubles = std::vector<double>;
using reading = patches::reading;

std::int64_t product(const std::array<std::int64_t, 3>& sizes) noexcept {
  return sizes[0] * sizes[1] * sizes[2];
}

doubles zeros(std::int64_t count) { return doubles(static_cast<std::size_t>(count)); }

/// Both sides of a comparison, [parts, vectors, rows], and the sizes of each row, [parts, rows].
struct sides {
  std::int64_t parts, rows, vectors;
  doubles left, terms, right, norms;

  sides(std::int64_t part_count, std::int64_t row_count, std::int64_t vector_count)
      : parts(part_count),
        rows(row_count),
        vectors(vector_count),
        left(zeros(parts * vectors * rows)),
        terms(zeros(parts * rows)),
        right(left),
        norms(terms) {}

  std::int64_t at(std::int64_t part) const noexcept { return part * vectors * rows; }

  /// Of a result whose rows are contiguous, `stride` elements from one column to the next.
  void project_result(std::int64_t part, const float* result, std::int64_t columns,
                      std::int64_t stride, const double* r, const executor& threads) {
    numeric::project(matrix<const float>{result, rows, columns, 1, stride},
                     {r, right.data() + at(part), static_cast<int>(vectors),
                      norms.data() + part * rows, nullptr, nullptr},
                     threads);
  }

  freivalds_result compare(const limits& what, double false_alarm) {
    comparison compared(what);
    for (std::size_t i = 0; i < left.size(); ++i) right[i] -= left[i];
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t row = part * rows; row < (part + 1) * rows; ++row) {
        compared.row(row, right.data() + at(part) + row - part * rows,
                     static_cast<std::size_t>(rows), static_cast<int>(vectors),
                     terms[static_cast<std::size_t>(row)],
                     std::sqrt(norms[static_cast<std::size_t>(row)]));
      }
    }
    return compared.finish(false_alarm);
  }
};

void take_roots(doubles& values) {
  for (double& one : values) one = std::sqrt(one);
}

/// The forward pass or the input gradient: for each image and group, the product of the weights
/// [channels, depth] with the patches [depth, positions].
class weighted_patches {
 public:
  weighted_patches(const convolution& g, reading what, const float* w, const float* bias)
      : read_(g, what), batch_(g.batch), groups_(g.groups), constant_(bias != nullptr) {
    const std::int64_t inputs = g.in_channels / groups_, outputs = g.out_channels / groups_;
    const std::int64_t taps = read_.taps();
    const bool forward = what == reading::inputs;
    channels_ = forward ? outputs : inputs;
    source_channels_ = forward ? inputs : outputs;
    source_size_ = source_channels_ * product(forward ? g.input : g.output());
    depth_ = source_channels_ * taps + (constant_ ? 1 : 0);
    weights_ = zeros(groups_ * channels_ * depth_);
    for (std::int64_t o = 0; o < groups_ * outputs; ++o) {
      for (std::int64_t i = 0; i < inputs; ++i) {
        const std::int64_t row = forward ? o : o / outputs * inputs + i;
        const std::int64_t column = forward ? i : o % outputs;
        double* const to = weights_.data() + row * depth_ + column * taps;
        for (std::int64_t t = 0; t < taps; ++t) to[t] = static_cast<double>(*w++);
      }
      if (constant_) weights_[static_cast<std::size_t>((o + 1) * depth_ - 1)] = double{bias[o]};
    }
  }

  freivalds_result check(const float* source, const float* result, const freivalds_options& options,
                         const executor& threads) const {
    if (batch_ * channels_ * read_.positions() < 1) {
      throw exception({errc::usage, "the result has no element", ""});
    }
    return batch_ > 2 * options.probes ? over_images(source, result, options, threads)
                                       : over_channels(source, result, options, threads);
  }

 private:
  /// The weights projected over the channels of the result, for each group and vector, and the
  /// sizes of what that sums.
  struct filters {
    doubles r, values, norms;
  };

  filters project_filters(probes& random, int vectors, const executor& threads) const {
    filters out{zeros(groups_ * vectors * channels_), zeros(groups_ * vectors * depth_),
                zeros(groups_ * depth_)};
    random.draw(out.r);
    for (std::int64_t group = 0; group < groups_; ++group) {
      const matrix<const double> w{weights_.data() + group * channels_ * depth_, depth_, channels_,
                                   1, depth_};
      numeric::project(
          w,
          {out.r.data() + group * vectors * channels_, out.values.data() + group * vectors * depth_,
           vectors, out.norms.data() + group * depth_, nullptr, nullptr},
          threads);
    }
    take_roots(out.norms);
    return out;
  }

  /// Few images: a row is a position of one, a column is a channel.
  freivalds_result over_channels(const float* source, const float* result,
                                 const freivalds_options& options, const executor& threads) const {
    const std::int64_t positions = read_.positions();
    const int vectors = options.probes;
    sides both(batch_ * groups_, positions, vectors);
    probes random(options.key);
    const filters f = project_filters(random, vectors, threads);
    // Padding is in the same places of every image, and stays zero.
    std::vector<float> seen(static_cast<std::size_t>(depth_ * positions));
    for (std::int64_t part = 0; part < both.parts; ++part) {
      const std::int64_t group = part % groups_;
      see(source + part * source_size_, seen.data());
      numeric::project(
          matrix<const float>{seen.data(), positions, depth_, 1, positions},
          {f.values.data() + group * vectors * depth_, both.left.data() + both.at(part), vectors,
           nullptr, f.norms.data() + group * depth_, both.terms.data() + part * positions},
          threads);
      both.project_result(part, result + part * channels_ * positions, channels_, positions,
                          f.r.data() + group * vectors * channels_, threads);
    }
    limits what = limits_of<float>(depth_, channels_, options);
    what.set_gauge(static_cast<double>(both.left.size()), options.false_alarm);
    return both.compare(what, options.false_alarm);
  }

  /// A row is a position of all images, a column is an image and a channel.
  freivalds_result over_images(const float* source, const float* result,
                               const freivalds_options& options, const executor& threads) const {
    const std::int64_t positions = read_.positions(), sources = groups_ * source_size_;
    const std::int64_t results = groups_ * channels_ * positions;
    const int vectors = options.probes;
    sides both(groups_, positions, vectors);
    probes random(options.key);
    const filters f = project_filters(random, vectors, threads);
    doubles s = zeros(vectors * batch_);
    random.draw(s);
    // The last of the vectors are squares, for the bounds.
    doubles from = zeros((vectors + 1) * sources), to = zeros((vectors + 1) * results);
    numeric::project(
        matrix<const float>{source, sources, batch_, 1, sources},
        {s.data(), from.data(), vectors, from.data() + vectors * sources, nullptr, nullptr},
        threads);
    numeric::project(
        matrix<const float>{result, results, batch_, 1, results},
        {s.data(), to.data(), vectors, to.data() + vectors * results, nullptr, nullptr}, threads);
    for (std::int64_t i = vectors * sources; i < (vectors + 1) * sources; ++i) {
      from[static_cast<std::size_t>(i)] = std::sqrt(from[static_cast<std::size_t>(i)]);
    }
    threads.run(static_cast<std::size_t>(groups_ * (vectors + 1)), [&](std::size_t task) {
      const auto group = static_cast<std::int64_t>(task) / (vectors + 1);
      const auto v = static_cast<std::int64_t>(task) % (vectors + 1);
      const bool bound = v == vectors;
      const double* const filter = bound ? f.norms.data() + group * depth_
                                         : f.values.data() + (group * vectors + v) * depth_;
      double* const left = bound ? both.terms.data() + group * positions
                                 : both.left.data() + both.at(group) + v * positions;
      double* const right = bound ? both.norms.data() + group * positions
                                  : both.right.data() + both.at(group) + v * positions;
      const double* const images = s.data() + v * batch_;
      const double one = bound ? std::sqrt(static_cast<double>(batch_))
                               : std::accumulate(images, images + batch_, 0.0);
      convolve(from.data() + v * sources + group * source_size_, one, filter, left);
      for (std::int64_t channel = 0; channel < channels_; ++channel) {
        const double* const line =
            to.data() + v * results + (group * channels_ + channel) * positions;
        const double factor =
            bound ? 1.0
                  : f.r[static_cast<std::size_t>((group * vectors + v) * channels_ + channel)];
        for (std::int64_t i = 0; i < positions; ++i) right[i] += factor * line[i];
      }
    });
    limits what = limits_of<float>(depth_, batch_ * channels_, options);
    what.set_gauge_of_pairs(static_cast<double>(both.left.size()), static_cast<double>(channels_),
                            options.false_alarm);
    return both.compare(what, options.false_alarm);
  }

  /// One image with one filter; `one` is what a bias sees.
  void convolve(const double* channels, double one, const double* filter, double* to) const {
    const std::int64_t size = source_size_ / source_channels_;
    for (std::int64_t channel = 0; channel < source_channels_; ++channel) {
      read_.add(channels + channel * size, filter + channel * read_.taps(), to);
    }
    if (!constant_) return;
    for (std::int64_t i = 0; i < read_.positions(); ++i) to[i] += one * filter[depth_ - 1];
  }

  /// All channels as all taps see them, [depth, positions], and the ones that a bias sees.
  void see(const float* channels, float* to) const {
    const std::int64_t size = source_size_ / source_channels_, taps = read_.taps();
    for (std::int64_t row = 0; row < source_channels_ * taps; ++row) {
      read_.write(channels + row / taps * size, row % taps, to);
      to += read_.positions();
    }
    if (constant_) std::fill_n(to, read_.positions(), 1.0F);
  }

  patches read_;
  std::int64_t batch_, groups_;
  bool constant_;  ///< the last column of the weights is a bias: what it sees are ones
  std::int64_t channels_ = 0, source_channels_ = 0;  ///< in a group
  std::int64_t source_size_ = 0;                     ///< of an image and group
  std::int64_t depth_ = 0;
  doubles weights_;  ///< [groups, channels, depth]
};

}  // namespace

freivalds_result freivalds_convolution(const convolution& geometry, const float* x, const float* w,
                                       const float* bias, const float* y,
                                       const freivalds_options& options, const executor& threads) {
  validate(options);
  return weighted_patches(geometry, reading::inputs, w, bias).check(x, y, options, threads);
}

freivalds_result freivalds_input_gradient(const convolution& geometry, const float* dy,
                                          const float* w, const float* dx,
                                          const freivalds_options& options,
                                          const executor& threads) {
  validate(options);
  return weighted_patches(geometry, reading::outputs, w, nullptr).check(dy, dx, options, threads);
}

freivalds_result freivalds_weight_gradient(const convolution& geometry, const float* x,
                                           const float* dy, const float* dw,
                                           const freivalds_options& options,
                                           const executor& threads) {
  validate(options);
  // A row is a channel of the input, a column is a channel of the output and a tap.
  const convolution& g = geometry;
  const patches read(g, reading::outputs);
  const std::int64_t outputs = product(g.output()), inputs = read.positions();
  const std::int64_t filters = g.out_channels / g.groups, channels = g.in_channels / g.groups;
  const std::int64_t taps = read.taps();
  const int vectors = options.probes;
  if (filters * channels * taps < 1) {
    throw exception({errc::usage, "the result has no element", ""});
  }
  sides both(g.groups, channels, vectors);
  doubles of_filters = zeros(g.groups * vectors * filters),
          of_taps = zeros(g.groups * vectors * taps);
  probes random(options.key);
  random.draw(of_filters);
  random.draw(of_taps);
  const auto r = [&](std::int64_t group) { return of_filters.data() + group * vectors * filters; };
  const auto s = [&](std::int64_t group, std::int64_t v) {
    return of_taps.data() + (group * vectors + v) * taps;
  };
  const doubles ones(static_cast<std::size_t>(taps), 1.0);
  // The last of the vectors are squares, for the bounds.
  doubles summed = zeros((vectors + 1) * outputs), seen = zeros((vectors + 1) * inputs);
  doubles sums = zeros((vectors + 1) * channels);
  for (std::int64_t part = 0; part < g.batch * g.groups; ++part) {
    const std::int64_t group = part % g.groups;
    numeric::project(
        matrix<const float>{dy + part * filters * outputs, outputs, filters, 1, outputs},
        {r(group), summed.data(), vectors, summed.data() + vectors * outputs, nullptr, nullptr},
        threads);
    std::fill(seen.begin(), seen.end(), 0.0);
    for (std::int64_t v = 0; v <= vectors; ++v) {
      read.add(summed.data() + v * outputs, v < vectors ? s(group, v) : ones.data(),
               seen.data() + v * inputs);
    }
    double* const norms = seen.data() + vectors * inputs;
    for (std::int64_t i = 0; i < inputs; ++i) norms[i] = std::sqrt(norms[i]);
    numeric::project(
        row_major(x + part * channels * inputs, channels, inputs),
        {seen.data(), sums.data(), vectors, nullptr, norms, sums.data() + vectors * channels},
        threads);
    double* const left = both.left.data() + both.at(group);
    for (std::int64_t i = 0; i < vectors * channels; ++i)
      left[i] += sums[static_cast<std::size_t>(i)];
    for (std::int64_t i = 0; i < channels; ++i) {
      both.terms[static_cast<std::size_t>(group * channels + i)] +=
          sums[static_cast<std::size_t>(vectors * channels + i)];
    }
  }
  const std::int64_t weights = channels * taps;
  doubles filtered = zeros((vectors + 1) * weights);
  for (std::int64_t group = 0; group < g.groups; ++group) {
    numeric::project(
        matrix<const float>{dw + group * filters * weights, weights, filters, 1, weights},
        {r(group), filtered.data(), vectors, filtered.data() + vectors * weights, nullptr, nullptr},
        threads);
    for (std::int64_t i = 0; i < (vectors + 1) * weights; ++i) {
      const std::int64_t v = i / weights, row = i % weights / taps, tap = i % taps;
      const double value = filtered[static_cast<std::size_t>(i)];
      if (v < vectors) {
        both.right[static_cast<std::size_t>(both.at(group) + v * channels + row)] +=
            s(group, v)[tap] * value;
      } else {
        both.norms[static_cast<std::size_t>(group * channels + row)] += value;
      }
    }
  }
  limits what = limits_of<float>(g.batch * outputs, filters * taps, options);
  what.set_gauge_of_pairs(static_cast<double>(both.left.size()), static_cast<double>(taps),
                          options.false_alarm);
  return both.compare(what, options.false_alarm);
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
// Convolutions are products of matrices, of which one holds an element many times. Vectors are for
// the channels of the result or for the images of the batch, whichever are more: fewer rows are
// left then, for which the projected convolution has to be computed.
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

  freivalds_result compare(std::int64_t depth, std::int64_t columns,
                           const freivalds_options& options) {
    limits what = limits_of<float>(depth, columns, options);
    what.set_gauge(static_cast<double>(parts * rows * vectors), options.false_alarm);
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
    return compared.finish(options.false_alarm);
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
    return batch_ > channels_ ? over_images(source, result, options, threads)
                              : over_channels(source, result, options, threads);
  }

 private:
  freivalds_result over_channels(const float* source, const float* result,
                                 const freivalds_options& options, const executor& threads) const {
    const std::int64_t positions = read_.positions();
    const int vectors = options.probes;
    sides both(batch_ * groups_, positions, vectors);
    doubles r = zeros(groups_ * vectors * channels_);
    probes(options.key).draw(r);
    doubles f = zeros(groups_ * vectors * depth_), norms = zeros(groups_ * depth_);
    for (std::int64_t group = 0; group < groups_; ++group) {
      const matrix<const double> w{weights_.data() + group * channels_ * depth_, depth_, channels_,
                                   1, depth_};
      numeric::project(w,
                       {r.data() + group * vectors * channels_, f.data() + group * vectors * depth_,
                        vectors, norms.data() + group * depth_, nullptr, nullptr},
                       threads);
    }
    take_roots(norms);
    std::vector<float> seen(static_cast<std::size_t>(depth_ * positions));
    for (std::int64_t part = 0; part < both.parts; ++part) {
      const std::int64_t group = part % groups_;
      see(source + part * source_size_, 1.0F, seen.data());
      numeric::project(
          matrix<const float>{seen.data(), positions, depth_, 1, positions},
          {f.data() + group * vectors * depth_, both.left.data() + both.at(part), vectors, nullptr,
           norms.data() + group * depth_, both.terms.data() + part * positions},
          threads);
      both.project_result(part, result + part * channels_ * positions, channels_, positions,
                          r.data() + group * vectors * channels_, threads);
    }
    return both.compare(depth_, channels_, options);
  }

  freivalds_result over_images(const float* source, const float* result,
                               const freivalds_options& options, const executor& threads) const {
    const std::int64_t positions = read_.positions(), sources = groups_ * source_size_;
    const int vectors = options.probes;
    sides both(1, groups_ * channels_ * positions, vectors);
    doubles r = zeros(vectors * batch_);
    probes(options.key).draw(r);
    doubles sums = zeros(vectors * sources), norms = zeros(sources), sizes = weights_;
    numeric::project(matrix<const float>{source, sources, batch_, 1, sources},
                     {r.data(), sums.data(), vectors, norms.data(), nullptr, nullptr}, threads);
    take_roots(norms);
    for (double& one : sizes) one = std::fabs(one);
    both.project_result(0, result, batch_, both.rows, r.data(), threads);
    doubles seen = zeros(depth_ * positions);
    const auto convolve = [&](const double* from, double one, const doubles& weights, double* to) {
      for (std::int64_t group = 0; group < groups_; ++group) {
        const std::int64_t at = group * channels_;
        see(from + group * source_size_, one, seen.data());
        numeric::gemm_ord64(
            row_major<const double>(weights.data() + at * depth_, channels_, depth_),
            row_major<const double>(seen.data(), depth_, positions),
            row_major(to + at * positions, channels_, positions), threads);
      }
    };
    for (std::int64_t v = 0; v < vectors; ++v) {
      const double* const of_images = r.data() + v * batch_;
      convolve(sums.data() + v * sources, std::accumulate(of_images, of_images + batch_, 0.0),
               weights_, both.left.data() + v * both.rows);
    }
    convolve(norms.data(), std::sqrt(static_cast<double>(batch_)), sizes, both.terms.data());
    return both.compare(depth_, batch_, options);
  }

  /// All channels as all taps see them, [depth, positions], and what a bias sees.
  template <class Real>
  void see(const Real* channels, Real one, Real* to) const {
    const std::int64_t size = source_size_ / source_channels_;
    for (std::int64_t row = 0; row < source_channels_ * read_.taps(); ++row) {
      read_.write(channels + row / read_.taps() * size, row % read_.taps(), to);
      to += read_.positions();
    }
    if (constant_) std::fill_n(to, read_.positions(), one);
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
  // A row is a weight of one filter. Not the inputs are moved to where the taps see them, but the
  // few projected gradients.
  const convolution& g = geometry;
  const patches read(g, reading::outputs);
  const std::int64_t positions = product(g.output()), filters = g.out_channels / g.groups;
  const std::int64_t channels = g.in_channels / g.groups, taps = read.taps();
  const int vectors = options.probes;
  if (filters * channels * taps < 1) {
    throw exception({errc::usage, "the result has no element", ""});
  }
  sides both(g.groups, channels * taps, vectors);
  doubles r = zeros(g.groups * vectors * filters);
  probes(options.key).draw(r);
  doubles f = zeros((vectors + 1) * positions), seen = zeros((vectors + 1) * read.positions());
  doubles sums = zeros((vectors + 1) * channels);
  double* const norms = f.data() + vectors * positions;
  double* const terms = sums.data() + vectors * channels;
  for (std::int64_t part = 0; part < g.batch * g.groups; ++part) {
    const std::int64_t group = part % g.groups;
    numeric::project(
        matrix<const float>{dy + part * filters * positions, positions, filters, 1, positions},
        {r.data() + group * vectors * filters, f.data(), vectors, norms, nullptr, nullptr},
        threads);
    for (std::int64_t i = 0; i < positions; ++i) norms[i] = std::sqrt(norms[i]);
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      for (std::int64_t v = 0; v <= vectors; ++v) {
        read.write(f.data() + v * positions, tap, seen.data() + v * read.positions());
      }
      numeric::project(
          row_major(x + part * channels * read.positions(), channels, read.positions()),
          {seen.data(), sums.data(), vectors, nullptr, seen.data() + vectors * read.positions(),
           terms},
          threads);
      for (std::int64_t i = 0; i < channels; ++i) {
        const std::int64_t row = i * taps + tap;
        for (std::int64_t v = 0; v < vectors; ++v) {
          both.left[static_cast<std::size_t>(both.at(group) + v * both.rows + row)] +=
              sums[static_cast<std::size_t>(v * channels + i)];
        }
        both.terms[static_cast<std::size_t>(group * both.rows + row)] += terms[i];
      }
    }
  }
  for (std::int64_t group = 0; group < g.groups; ++group) {
    both.project_result(group, dw + group * filters * both.rows, filters, both.rows,
                        r.data() + group * vectors * filters, threads);
  }
  return both.compare(g.batch * positions, filters, options);
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
// Convolutions are products of matrices that are never written down. One side is projected over the
// channels that do not survive it; the convolution with what is left has a channel for each vector.
#include <cmath>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/projection.hpp>

#include "freivalds_bounds.hpp"

namespace potl::checks {
namespace {

using namespace freivalds_detail;
using numeric::convolution;
using numeric::executor;
using numeric::matrix;
using floats = std::vector<float>;
using doubles = std::vector<double>;

std::int64_t product(const std::array<std::int64_t, 3>& sizes) noexcept {
  return sizes[0] * sizes[1] * sizes[2];
}

std::size_t size(std::int64_t count) noexcept { return static_cast<std::size_t>(count); }

floats magnitudes(const float* from, std::int64_t count) {
  floats out(size(count));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::fabs(from[i]);
  return out;
}

/// A tensor [parts, count, positions], each part of which belongs to a group: to the next one each
/// time, or to that of its neighbours where `in_runs`.
struct channels {
  std::int64_t parts, count, positions, groups;
  bool in_runs;

  std::int64_t group_of(std::int64_t part) const noexcept {
    return in_runs ? part / (parts / groups) : part % groups;
  }
  matrix<const float> at(const float* data, std::int64_t part) const noexcept {
    return {data + part * count * positions, positions, count, 1, positions};
  }
};

/// The projections of a tensor over its channels, [parts, vectors, positions], and the norms of the
/// rows that they sum, [parts, positions]. Each group has vectors of its own.
struct projected {
  doubles values, norms;

  projected(const channels& shape, const float* data, const doubles& r, int vectors,
            const executor& threads)
      : values(size(shape.parts * vectors * shape.positions)),
        norms(size(shape.parts * shape.positions)) {
    for (std::int64_t part = 0; part < shape.parts; ++part) {
      numeric::project(shape.at(data, part),
                       {r.data() + shape.group_of(part) * vectors * shape.count,
                        values.data() + part * vectors * shape.positions, vectors,
                        norms.data() + part * shape.positions, nullptr, nullptr},
                       threads);
    }
    for (double& norm : norms) norm = std::sqrt(norm);
  }
};

floats rounded(const doubles& values) {
  floats out(values.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(values[i]);
  return out;
}

/// One convolution of the three: what it reduces, and how the one with few channels is computed.
struct direction {
  convolution geometry;
  channels operand;  ///< what is projected
  channels result;
  std::int64_t depth;
  std::int64_t other_size;
  std::int64_t convolution::*channel;  ///< the channels that the vectors sum
  /// (geometry with `vectors` channels in each group, other operand, projected operand, result)
  void (*compute)(const convolution&, const float*, const float*, float*, const executor&);
};

freivalds_result check_direction(const direction& what, const float* other, const float* operand,
                                 const float* result, const freivalds_options& options,
                                 const executor& threads) {
  const int vectors = options.probes;
  const std::int64_t groups = what.geometry.groups, columns = what.result.count;
  const std::int64_t positions = what.result.positions, rows = what.result.parts * positions;
  if (rows < 1 || columns < 1) throw exception({errc::usage, "the result has no element", ""});
  doubles r(size(groups * vectors * columns));
  probes(options.key).draw(r);
  const projected right(what.operand, operand, r, vectors, threads);
  const projected of_result(what.result, result, r, vectors, threads);

  convolution few = what.geometry;
  few.*what.channel = groups * vectors;
  floats left(size(rows * vectors));
  what.compute(few, other, rounded(right.values).data(), left.data(), threads);
  few.*what.channel = groups;
  floats terms(size(rows));
  what.compute(few, magnitudes(other, what.other_size).data(), rounded(right.norms).data(),
               terms.data(), threads);

  limits bounds = limits_of<float>(what.depth, columns, options);
  bounds.z = gauge(static_cast<double>(rows) * vectors, options.false_alarm / 2);
  // The verifier's own convolution is float32 too, in ord32: chains of 512 terms and their sums.
  // Its terms are |x| |f|, where f is a projection that exceeds z' norms seldom enough.
  const double own = gamma(numeric::ord_chunk + bounds.depth / numeric::ord_chunk + 4, bounds.unit);
  bounds.own = gauge(static_cast<double>(right.values.size()), options.false_alarm / 2) *
               (own + gamma(2 * bounds.columns + 8, 0x1p-53));
  comparison compared(bounds);
  doubles residuals(size(vectors));
  for (std::int64_t part = 0; part < what.result.parts; ++part) {
    for (std::int64_t at = 0; at < positions; ++at) {
      for (int v = 0; v < vectors; ++v) {
        const std::size_t place = size((part * vectors + v) * positions + at);
        residuals[size(v)] = of_result.values[place] - static_cast<double>(left[place]);
      }
      const std::size_t row = size(part * positions + at);
      compared.row(static_cast<std::int64_t>(row), residuals.data(), 1, vectors,
                   static_cast<double>(terms[row]) * (1 + 2 * own), of_result.norms[row]);
    }
  }
  return compared.finish(options.false_alarm);
}

}  // namespace

freivalds_result freivalds_convolution(const convolution& geometry, const float* x, const float* w,
                                       const float* y, const freivalds_options& options,
                                       const executor& threads) {
  validate(options);
  const std::int64_t outputs = product(geometry.output());
  const convolution& g = geometry;
  const std::int64_t taps = g.in_channels / g.groups * product(g.kernel);
  const std::int64_t filters = g.out_channels / g.groups;
  return check_direction({g,
                          {g.groups, filters, taps, g.groups, false},
                          {g.batch * g.groups, filters, outputs, g.groups, false},
                          taps,
                          g.batch * g.in_channels * product(g.input),
                          &convolution::out_channels,
                          [](const convolution& few, const float* other, const float* one,
                             float* out, const executor& workers) {
                            convolve(numeric::arithmetic::ord32, few, other, one, out, workers);
                          }},
                         x, w, y, options, threads);
}

freivalds_result freivalds_input_gradient(const convolution& geometry, const float* dy,
                                          const float* w, const float* dx,
                                          const freivalds_options& options,
                                          const executor& threads) {
  validate(options);
  const std::int64_t outputs = product(geometry.output());
  const convolution& g = geometry;
  const std::int64_t taps = product(g.kernel), channels = g.in_channels / g.groups;
  return check_direction({g,
                          {g.out_channels, channels, taps, g.groups, true},
                          {g.batch * g.groups, channels, product(g.input), g.groups, false},
                          g.out_channels / g.groups * taps,
                          g.batch * g.out_channels * outputs,
                          &convolution::in_channels,
                          [](const convolution& few, const float* other, const float* one,
                             float* out, const executor& workers) {
                            convolve_input_gradient(numeric::arithmetic::ord32, few, other, one,
                                                    out, workers);
                          }},
                         dy, w, dx, options, threads);
}

freivalds_result freivalds_weight_gradient(const convolution& geometry, const float* x,
                                           const float* dy, const float* dw,
                                           const freivalds_options& options,
                                           const executor& threads) {
  validate(options);
  const std::int64_t outputs = product(geometry.output());
  const convolution& g = geometry;
  const std::int64_t filters = g.out_channels / g.groups;
  return check_direction(
      {g,
       {g.batch * g.groups, filters, outputs, g.groups, false},
       {g.groups, filters, g.in_channels / g.groups * product(g.kernel), g.groups, false},
       g.batch * outputs,
       g.batch * g.in_channels * product(g.input),
       &convolution::out_channels,
       [](const convolution& few, const float* other, const float* one, float* out,
          const executor& workers) {
         convolve_weight_gradient(numeric::arithmetic::ord32, few, other, one, out, workers);
       }},
      x, dy, dw, options, threads);
}

}  // namespace potl::checks

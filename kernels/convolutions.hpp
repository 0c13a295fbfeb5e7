// SPDX-License-Identifier: Apache-2.0
// Which products make a convolution and its gradients, on any device (layers.hpp). Private.
//
// The product has a row for each channel of a group and a column for each place of the image, or,
// for the gradient of weights, for each weight. The gradient of the input is a product for each
// remainder of a position by the stride: those positions meet the same taps.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>

#include <potl/core/error.hpp>
#include <potl/numeric/convolution.hpp>

#include "chunks.hpp"
#include "convolution.hpp"
#include "product_layers.hpp"

namespace potl::cuda {

using axes = std::array<std::int64_t, 3>;

inline std::int64_t product_of(const axes& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

/// Sizes and addresses count in 32 bits.
inline std::int32_t small(std::int64_t value) {
  if (value > std::numeric_limits<std::int32_t>::max())
    throw exception(
        {errc::usage, "an operand of a convolution has more than 2^31 elements", "cut the batch"});
  return static_cast<std::int32_t>(value);
}

inline point_list line_of(std::int64_t count, std::int64_t step) {
  return {small(count), small(step), {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, false, 0};
}
/// A grid in an image of the sizes `image`.
inline point_list grid_in(const axes& image, std::int64_t major, std::int64_t major_step,
                          const axes& count, const axes& first, const axes& step,
                          bool has_position) {
  point_list out{small(major), small(major_step), {}, {}, {}, {}, has_position, 0};
  std::int64_t place = 1;
  for (std::size_t axis = 3; axis-- > 0; place *= image[axis]) {
    out.count[axis] = small(count[axis]);
    out.first[axis] = small(first[axis]);
    out.step[axis] = small(step[axis]);
    out.place_step[axis] = small(place);
  }
  return out;
}

/// What a convolution's lists are made of.
struct convolution_parts {
  explicit convolution_parts(const numeric::convolution& geometry)
      : g(geometry),
        out(geometry.output()),
        inner(g.in_channels / g.groups),
        outer(g.out_channels / g.groups),
        inputs(product_of(g.input)),
        outputs(product_of(out)),
        taps(product_of(g.kernel)) {
    small(g.batch * g.in_channels * inputs);
    small(g.batch * g.out_channels * outputs);
    small(g.out_channels * inner * taps);
  }
  /// x at every output: n, then where its window begins.
  point_list windows() const {
    axes first;
    for (std::size_t a = 0; a < 3; ++a) first[a] = -g.padding[a];
    return grid_in(g.input, g.batch, g.in_channels * inputs, out, first, g.stride, true);
  }
  /// x within a window: channel, then tap.
  point_list window() const {
    return grid_in(g.input, inner, inputs, g.kernel, {0, 0, 0}, g.dilation, true);
  }
  /// y: n, then position.
  point_list results() const {
    return grid_in(out, g.batch, g.out_channels * outputs, out, {0, 0, 0}, {1, 1, 1}, false);
  }

  const numeric::convolution& g;
  axes out;
  std::int64_t inner, outer, inputs, outputs, taps;
};

/// Along one axis, the taps that input positions with this remainder meet: tap first_tap + i
/// tap_step, at output position first_output - i output_step + (position - remainder) / stride.
struct phase {
  std::int64_t positions, taps = 0, first_tap = 0, tap_step = 1, first_output = 0, output_step = 1;

  phase(const numeric::convolution& g, std::size_t axis, std::int64_t remainder)
      : positions((g.input[axis] - remainder + g.stride[axis] - 1) / g.stride[axis]) {
    const std::int64_t stride = g.stride[axis], dilation = g.dilation[axis];
    const auto distance = [&](std::int64_t tap) {
      return remainder + g.padding[axis] - tap * dilation;
    };
    while (first_tap < g.kernel[axis] && distance(first_tap) % stride != 0) ++first_tap;
    if (first_tap >= g.kernel[axis]) return;
    tap_step = stride / std::gcd(stride, dilation);
    taps = (g.kernel[axis] - first_tap + tap_step - 1) / tap_step;
    first_output = distance(first_tap) / stride;
    output_step = tap_step * dilation / stride;
  }
};

/// A convolution's product in tiles of `Tile`; see multiply_gathered().
template <class Tile, bool Split, class Device, class A>
void multiply_in(const Device& device, const gathered_products<Tile, A, Split>& all) {
  const std::int64_t tiles = all.tiles() * all.groups;
  if constexpr (Split) {
    in_chunks(device, all.groups, all.c.row_count, all.c.column_count, all.depth, all,
              [&](const chunk_sums& sums, std::int64_t chunks) {
                gathered_products<Tile, A, Split> part = all;
                part.sums = sums;
                device.run(static_cast<std::uint64_t>(tiles * chunks), part);
              });
  } else {
    device.run(static_cast<std::uint64_t>(tiles), all);
  }
}

/// C of the products of all groups.
struct gather_targets {
  gather_target c;
  std::int64_t step;
  POTL_BODY gather_target of(std::int64_t group) const {
    gather_target out = c;
    out.data += group * step;
    return out;
  }
  /// Of the element in the result.
  POTL_BODY std::uint64_t index(std::int64_t group, std::int64_t row, std::int64_t column) const {
    return static_cast<std::uint64_t>(group * step + c.rows[row].place + c.columns[column].place);
  }
};

inline stored_lines lines_of(const numeric::matrix<const float>& a, std::int64_t,
                             std::int64_t step) {
  return {a, step};
}
inline gathered_lines lines_of(const gathered& a, std::int64_t depth, std::int64_t step) {
  return {a, depth, step};
}

/// A convolution's product; `a` of the lists is not looked at where A is a matrix. With Split,
/// chunks are computed apart in ord32.
template <bool Split, class Device, class A>
void multiply_gathered(const Device& device, const product_form& form, gather_lists lists,
                       const convolution_parts& p, const axes& inside, A a, std::int64_t a_step,
                       const float* b, std::int64_t b_step, bool b_along_k, float* c,
                       std::int64_t c_step) {
  std::int64_t points = 0;
  for (point_list& one : lists.of) {
    one.begin = points;
    points += one.size();
  }
  const point_list* of = lists.of;
  if (of[gather_lists::c_rows].size() * of[gather_lists::c_columns].size() == 0) return;
  typename Device::template numbers<gather_point> memory(device,
                                                         static_cast<std::uint64_t>(points));
  gather_point* at = memory.data();
  device.each(static_cast<std::uint64_t>(points), list_points{lists, at});
  const auto list = [&](unsigned which) -> const gather_point* { return at + of[which].begin; };
  if constexpr (std::is_same_v<A, gathered>) {
    a.lines = list(gather_lists::a_lines);
    a.depth = list(gather_lists::a_depth);
    a.line_count = of[gather_lists::a_lines].size();
  }
  const gathered right{b,
                       list(gather_lists::b_lines),
                       list(gather_lists::b_depth),
                       of[gather_lists::b_lines].size(),
                       {small(inside[0]), small(inside[1]), small(inside[2])},
                       b_along_k};
  const gather_target target{c, list(gather_lists::c_rows), list(gather_lists::c_columns),
                             of[gather_lists::c_rows].size(), of[gather_lists::c_columns].size()};
  const std::int64_t depth = of[gather_lists::b_depth].size();
  const auto left = lines_of(a, depth, a_step);
  const auto other = lines_of(right, depth, b_step);
  const gather_targets targets{target, c_step};
  if (form.integer_bits() != 0) {
    return multiply_integers(device, form.integer_bits(), left, other, targets, p.g.groups, false,
                             false);
  }
  if (form.is_rounded())
    return multiply_rounded(device, form.bits, left, other, targets, p.g.groups, form.ties);
  const auto in_tiles = [&]<class Tile>(Tile) {
    return gathered_products<Tile, A, Split>{a,      right,  target,     depth, a_step,
                                             b_step, c_step, p.g.groups, {}};
  };
  const auto large = in_tiles(large_tile());
  const std::int64_t chunks = Split ? chunks_of(large.depth) : 1;
  if (large.c.row_count > small_tile::rows &&
      large.tiles() * p.g.groups * chunks >= enough_blocks) {
    multiply_in(device, large);
  } else {
    multiply_in(device, in_tiles(small_tile()));
  }
}

/// An operand whose lists multiply_gathered() fills in, and which has no padding.
inline gathered gathered_from(const float* data, bool along_k) {
  return {data, nullptr, nullptr, 0, {1, 1, 1}, along_k};
}
/// A list of which nothing is looked at.
inline point_list no_list() { return line_of(0, 0); }

/// Whether each image is a product of matrices in memory: every window is one place, and the places
/// of one image fill most of its tiles.
inline bool is_product(const convolution_parts& p) {
  const numeric::convolution& g = p.g;
  const axes one{1, 1, 1};
  const std::int64_t in_tiles =
      (p.outputs + large_tile::columns - 1) / large_tile::columns * large_tile::columns;
  return g.kernel == one && g.stride == one && g.padding == axes{0, 0, 0} && g.groups == 1 &&
         p.outputs * 4 >= in_tiles * 3;
}

template <class Device>
void convolve(const Device& device, const product_form& form, const numeric::convolution& geometry,
              const float* x, const float* w, float* y) {
  const convolution_parts p(geometry);
  if (is_product(p)) {
    return multiply(device, form,
                    products{{geometry.batch, 0, p.inner * p.inputs, p.outer * p.outputs},
                             numeric::row_major(w, p.outer, p.inner),
                             numeric::row_major(x, p.inner, p.inputs),
                             numeric::row_major(y, p.outer, p.outputs)});
  }
  const std::int64_t depth = p.inner * p.taps;
  const gather_lists lists{
      {no_list(), no_list(), p.windows(), p.window(), line_of(p.outer, p.outputs), p.results()}};
  multiply_gathered<false>(device, form, lists, p, geometry.input,
                           numeric::row_major(w, p.outer, depth), p.outer * depth, x,
                           p.inner * p.inputs, false, y, p.outer * p.outputs);
}

template <class Device>
void convolve_weight_gradient(const Device& device, const product_form& form,
                              const numeric::convolution& geometry, const float* x, const float* dy,
                              float* dw) {
  const convolution_parts p(geometry);
  const std::int64_t weights = p.inner * p.taps;
  const gather_lists lists{{line_of(p.outer, p.outputs), p.results(), p.window(), p.windows(),
                            line_of(p.outer, weights), line_of(weights, 1)}};
  // Few weights have many places to add over.
  multiply_gathered<true>(device, form, lists, p, geometry.input, gathered_from(dy, true),
                          p.outer * p.outputs, x, p.inner * p.inputs, true, dw, p.outer * weights);
}

template <class Device>
void convolve_input_gradient(const Device& device, const product_form& form,
                             const numeric::convolution& geometry, const float* dy, const float* w,
                             float* dx) {
  const convolution_parts p(geometry);
  const numeric::convolution& g = geometry;
  if (is_product(p)) {
    return multiply(device, form,
                    products{{g.batch, 0, p.outer * p.outputs, p.inner * p.inputs},
                             numeric::row_major(w, p.outer, p.inner).transposed(),
                             numeric::row_major(dy, p.outer, p.outputs),
                             numeric::row_major(dx, p.inner, p.inputs)});
  }
  for (std::int64_t part = 0; part < product_of(g.stride); ++part) {
    const axes remainder{part / (g.stride[1] * g.stride[2]), part / g.stride[2] % g.stride[1],
                         part % g.stride[2]};
    axes positions, taps, first_tap, tap_step, first_output, output_step;
    for (std::size_t a = 0; a < 3; ++a) {
      const phase along(g, a, remainder[a]);
      positions[a] = along.positions;
      taps[a] = along.taps;
      first_tap[a] = along.first_tap;
      tap_step[a] = along.tap_step;
      first_output[a] = along.first_output;
      output_step[a] = -along.output_step;
    }
    const gather_lists lists{
        {line_of(p.inner, p.taps),
         grid_in(g.kernel, p.outer, p.inner * p.taps, taps, first_tap, tap_step, false),
         grid_in(p.out, g.batch, g.out_channels * p.outputs, positions, {0, 0, 0}, {1, 1, 1}, true),
         grid_in(p.out, p.outer, p.outputs, taps, first_output, output_step, true),
         line_of(p.inner, p.inputs),
         grid_in(g.input, g.batch, g.in_channels * p.inputs, positions, remainder, g.stride,
                 false)}};
    multiply_gathered<false>(device, form, lists, p, p.out, gathered_from(w, false),
                             p.outer * p.inner * p.taps, dy, p.outer * p.outputs, false, dx,
                             p.inner * p.inputs);
  }
}

}  // namespace potl::cuda

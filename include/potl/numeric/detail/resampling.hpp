// SPDX-License-Identifier: Apache-2.0
// Interpolation along one dimension, as a table of taps: upsampling, resizing with a filter,
// reflected and repeated borders. The gradient is the same with the transposed table.
//
// Claims: y[j] = ((w0 x[p0]) + w1 x[p1]) + ... over the taps of output j in their order, where
// every product and every sum is rounded for itself; +0 without taps. Weights are computed in
// double by the operations below (no contraction, no library function) and rounded once to the
// element type. More dimensions are resampled one after the other. Same bits for any number of
// threads. Assumes round-to-nearest without flush-to-zero. Taps follow
// torch.nn.functional.interpolate and pad, so that results agree up to rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

/// Taps first[j] ... first[j + 1] - 1 belong to output j.
struct tap_table {
  std::int64_t inputs = 0;
  std::vector<std::int64_t> first{0};
  std::vector<std::int64_t> positions;
  std::vector<double> weights;

  std::int64_t outputs() const noexcept { return static_cast<std::int64_t>(first.size()) - 1; }
  /// Closes an output whose taps have been added.
  void close() { first.push_back(static_cast<std::int64_t>(positions.size())); }
};

/// Outputs become inputs; the taps of each are in ascending order of the former output.
tap_table transposed(const tap_table& table);

struct resize {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool align_corners = false;
  std::optional<double> scale;  ///< outputs / inputs as the caller gave it; absent: the quotient
};

/// The nearest input below (`exact`: the input at the centre); one tap of weight 1.
tap_table nearest_taps(const resize& of, bool exact);
/// Two taps: 1 - l and l, l the distance from the lower one.
tap_table linear_taps(const resize& of);
/// Four taps of the cubic convolution with A = -0.75; positions are clamped to the border.
tap_table cubic_taps(const resize& of);
/// The triangle filter, widened when it shrinks; weights are divided by their sum.
tap_table smooth_linear_taps(const resize& of);
/// The cubic filter with A = -0.5, likewise.
tap_table smooth_cubic_taps(const resize& of);
/// `before` and `after` elements of border around `inputs`; negative numbers cut. `reflect`: as in
/// a mirror, without repeating the border itself; else the border is repeated.
tap_table padding_taps(std::int64_t inputs, std::int64_t before, std::int64_t after, bool reflect);

/// x is [outer][table.inputs][inner], y is [outer][table.outputs()][inner].
void resample(const tap_table& table, std::int64_t outer, std::int64_t inner, const float* x,
              float* y, const executor& workers);
void resample(const tap_table& table, std::int64_t outer, std::int64_t inner, const double* x,
              double* y, const executor& workers);

}  // namespace potl::numeric

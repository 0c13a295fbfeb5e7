// SPDX-License-Identifier: Apache-2.0
// What a convolution multiplies: channels of an image as each tap of the kernel sees them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <potl/numeric/convolution.hpp>

namespace potl::checks::freivalds_detail {

/// For each position of a result, the element that a tap reads; zero where it reads padding.
class patches {
 public:
  enum class reading {
    inputs,   ///< for each position of the output, the input that is multiplied by the tap
    outputs,  ///< for each position of the input, the output that it is in, times the tap
  };

  patches(const numeric::convolution& geometry, reading what);

  std::int64_t taps() const noexcept { return taps_; }
  std::int64_t positions() const noexcept { return positions_; }

  /// One channel of one image, as one tap sees it: `positions()` elements, of which those that are
  /// padding are left as they are.
  void write(const float* channel, std::int64_t tap, float* to) const;
  /// Adds what all taps see, each times its factor.
  void add(const double* channel, const double* factors, double* to) const;

 private:
  /// One dimension and tap: the result's positions begin, begin + every, ... read the source's
  /// positions first, first + step, ...; `count` of them, the others read padding.
  struct view {
    std::int64_t begin, every, first, step, count;
  };

  /// put(to, from), for each element that is not padding.
  template <class Real, class Put>
  void each(const Real* channel, std::int64_t tap, Real* to, Put put) const;

  const view& of(std::size_t dimension, std::int64_t tap) const noexcept;
  void pad(const numeric::convolution& geometry, bool inputs);

  std::array<std::vector<view>, 3> views_;
  std::array<std::int64_t, 3> result_{}, source_{};
  std::int64_t taps_ = 1, positions_ = 1;
  /// With a stride of 1 a tap sees the channel, with padding around it, from its own place on.
  struct {
    std::array<std::int64_t, 3> size{}, channel_at{};  ///< empty with other strides
    std::vector<std::int64_t> offsets;
  } padded_;
};

}  // namespace potl::checks::freivalds_detail

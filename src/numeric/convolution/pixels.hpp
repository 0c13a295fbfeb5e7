// SPDX-License-Identifier: Apache-2.0
// The part of the input that some results read, channels last and with its padding written out, so
// that the lanes of a weight gradient are channels, or channels of neighbouring taps.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <potl/numeric/convolution.hpp>

#include "tile.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {

/// Channels [first, first + count) of a group, and the vectors of lanes that hold their taps.
struct channel_block {
  std::int64_t first, count;
  std::vector<std::int64_t> vectors;  ///< offset of each in the pixels
  std::int64_t lanes;                 ///< of a vector
  std::int64_t before = 0;            ///< lanes of the blocks before this one
};

class pixels {
 public:
  /// For `most` results in a row (n, d, h, w flattened).
  pixels(const convolution& g, std::int64_t most);

  /// Floats of workspace for so many channels.
  std::int64_t size(std::int64_t channels) const noexcept {
    // Pointwise, whole vectors.
    return images_ * image_ * (channels + (pointwise_ ? 15 : 0)) + gather_lines * width_ + 64;
  }
  /// Elements of one channel: what a block of channels costs.
  std::int64_t per_channel() const noexcept { return images_ * image_; }

  /// Of a tap, in pixels.
  std::int64_t tap_offset(std::int64_t d, std::int64_t h, std::int64_t w) const noexcept {
    return (d * g_.dilation[0] * height_ + h * g_.dilation[1]) * width_ + w * g_.dilation[2];
  }
  /// Of a tap by its index in the kernel.
  std::int64_t tap_offset(std::int64_t tap) const noexcept {
    const std::int64_t high = g_.kernel[1], wide = g_.kernel[2];
    return tap_offset(tap / wide / high, tap / wide % high, tap % wide);
  }
  channel_block block(std::int64_t first, std::int64_t count, std::int64_t lanes) const;
  /// Taps whose lanes are neighbours, and how many such runs there are.
  std::int64_t run_taps() const noexcept { return run_taps_; }

  /// Writes what the results [begin, end) read, and where: offsets[i] is that of result begin + i.
  void fill(const float* x, std::int64_t group, const channel_block& channels, std::int64_t begin,
            std::int64_t end, const kernels& with, float* workspace, std::int64_t* offsets) const;
  /// The same for all channels of a group, each of them in per_channel() elements of its own.
  void fill_planes(const float* x, std::int64_t group, std::int64_t begin, std::int64_t end,
                   const kernels& with, float* workspace, std::int64_t* offsets) const;

 private:
  static constexpr std::int64_t gather_lines = 16;
  struct lines {
    std::int64_t d0, d1, h0, h1;
  };
  lines lines_of(std::int64_t first, std::int64_t last) const noexcept;
  void place(std::int64_t p, std::int64_t stop, const lines& used, std::int64_t at,
             std::int64_t each, std::int64_t* offsets) const;
  void fill_line(const float* source, std::int64_t channels, const kernels& with, float* gathered,
                 float* target) const;

  const convolution& g_;
  std::array<std::int64_t, 3> out_;
  bool pointwise_;  // the workspace holds the results' places alone, vector by vector
  // Along a dimension with one tap only what is read is kept: `step_` is its stride, else 1.
  std::array<std::int64_t, 3> step_{}, move_{}, taps_{};
  std::int64_t run_taps_, images_, width_, height_, image_;
};

}  // namespace potl::numeric::conv

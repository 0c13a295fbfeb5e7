// SPDX-License-Identifier: Apache-2.0
// The part of the source that a block of results reads, with its padding written out as zeros, so
// that each tap is a fixed offset; or the source itself where that is so already.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "block_grid.hpp"
#include "gather.hpp"

namespace potl::numeric::conv {

/// Room beyond the window: vectors read past its end.
constexpr std::int64_t slack = 64;

/// Fills lines whose places lie any number of steps apart.
void fill_lines(const plane_task& task, const kernels& with);

/// Whether every result reads the one place of the source that it has itself: one tap, no padding,
/// no stride.
bool reads_own_place(const gather& what) noexcept;

class window {
 public:
  /// For blocks of at most these sizes. Who reads lines in whole vectors, beyond their end, says
  /// so: a source that ends there cannot serve as it is.
  window(const gather& what, std::int64_t images, std::int64_t d, std::int64_t h,
         bool whole_vectors = false);

  /// Whether the source can be read as it is: one tap without padding, no stride.
  bool is_source() const noexcept { return is_source_; }
  /// Floats of workspace.
  std::int64_t size() const noexcept { return is_source_ ? 0 : images_ * image_ + slack; }
  /// Size of one channel of one image.
  std::int64_t channel() const noexcept { return channel_; }

  std::int64_t offset(std::int64_t channel, const tap& at) const noexcept;
  /// Of all channels and taps, in the order of a result's terms.
  std::vector<std::int64_t> offsets(const phase& of) const;
  /// Of grid position (d, h, 0) of an image, counted from the block's first.
  std::int64_t line(std::int64_t image, std::int64_t d, std::int64_t h) const noexcept {
    return image * image_ + d * slice_ + h * pitch_;
  }

  /// Of all results of the largest block, as line(); a smaller block has the first of them.
  std::vector<std::int64_t> places(const block_grid& largest) const;

  /// Where the block's window begins; fills `workspace` unless the source serves.
  const float* fill(const block& here, std::int64_t group, const kernels& with,
                    float* workspace) const;

 private:
  struct slot_lines {
    std::int64_t start_d = 0;
    std::int64_t from = 0;  // in a slice of the source
    plane_task task{};
  };
  slot_lines lines_of(const block& here, std::int64_t start_h, std::int64_t start_w) const;

  const gather& what_;
  std::int64_t images_;
  bool is_source_;
  std::array<std::int64_t, 3> slots_{};
  std::int64_t pitch_, slice_, slot_, channel_, image_;
};

}  // namespace potl::numeric::conv

// SPDX-License-Identifier: Apache-2.0
// What a cloud could find by looking for regions that many samples share.
//
// Claims: counts, for every sample, the windows whose values occur in at least `least` samples
// (itself included): at the same place, or anywhere. Windows of one value alone are skipped, as
// real images have them. Values are compared after their lowest `dropped_bits` are cut off, which
// finds near copies as well.
// Assumes that 64-bit hashes of windows do not collide (a chance of 2^-13 for 2^26 windows).
// Cost: a hash and 16 bytes for each window, and a sort.
// Cannot see: copies that are scaled, or moved by less than a cut-off level.
// Source: docs/reference/attacks.md, A22.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <potl/checks/extra_task_samples.hpp>

namespace potl::checks {

struct region_search {
  std::uint64_t rows = 8, columns = 8;  ///< of a window; tokens: columns alone
  std::uint64_t stride = 1;
  std::uint64_t dropped_bits = 0;
  std::uint64_t least = 2;
  bool anywhere = false;  ///< whether the place of a window does not matter
};

struct region_counts {
  std::vector<std::uint64_t> shared;  ///< windows of each sample that others share
  std::uint64_t windows = 0;          ///< of each sample
};

/// usage: a window that does not fit, data that are not whole samples; limit: more than 2^26
/// windows.
result<region_counts> shared_regions(std::span<const std::uint8_t> images, const extra_image& shape,
                                     const region_search& search);
result<region_counts> shared_regions(std::span<const std::int64_t> texts, std::uint64_t length,
                                     const region_search& search);

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
// Sizes that follow from a geometry.
#pragma once

#include <potl/numeric/convolution.hpp>

namespace potl::numeric::conv {

inline std::int64_t volume(const std::array<std::int64_t, 3>& sizes) noexcept {
  return sizes[0] * sizes[1] * sizes[2];
}

/// Whether each result reads one place, and results lie as what they read.
inline bool is_pointwise(const convolution& g) noexcept {
  for (std::size_t i = 0; i < 3; ++i)
    if (g.kernel[i] != 1 || g.stride[i] != 1 || g.padding[i] != 0) return false;
  return true;
}

}  // namespace potl::numeric::conv

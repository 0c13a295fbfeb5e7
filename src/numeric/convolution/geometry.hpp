// SPDX-License-Identifier: Apache-2.0
// Sizes that follow from a geometry.
#pragma once

#include <potl/numeric/convolution.hpp>

namespace potl::numeric::conv {

inline std::int64_t volume(const std::array<std::int64_t, 3>& sizes) noexcept {
  return sizes[0] * sizes[1] * sizes[2];
}

}  // namespace potl::numeric::conv

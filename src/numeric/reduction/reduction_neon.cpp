// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)
#include "../elementwise/lanes_neon.hpp"

#include "fused.hpp"

namespace potl::numeric::reductions {

const both_kernels& neon_kernels() noexcept {
  static constexpr both_kernels all{kernels_of<f32x4>, kernels_of<f64x2>};
  return all;
}

}  // namespace potl::numeric::reductions
#endif

// SPDX-License-Identifier: Apache-2.0
#if defined(__aarch64__)
#include "numeric/elementwise/lanes_neon.hpp"

#include "body.hpp"

namespace potl::numeric::ieee {

const both_kernels& neon_kernels() noexcept {
  static constexpr both_kernels all{kernels_of<elementwise::f32x4>, kernels_of<elementwise::f64x2>};
  return all;
}

}  // namespace potl::numeric::ieee
#endif

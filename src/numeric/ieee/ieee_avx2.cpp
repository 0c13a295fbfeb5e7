// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX2__)
#include "numeric/elementwise/lanes_avx2.hpp"

#include "body.hpp"

namespace potl::numeric::ieee {

const both_kernels& avx2_kernels() noexcept {
  static constexpr both_kernels all{kernels_of<elementwise::f32x8>, kernels_of<elementwise::f64x4>};
  return all;
}

}  // namespace potl::numeric::ieee
#endif

// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX2__)
#include "../elementwise/lanes_avx2.hpp"

#include "body.hpp"

namespace potl::numeric::projections {

const both_kernels& avx2_kernels() noexcept {
  static constexpr both_kernels all{kernels_of<f32x8>, kernels_of<f64x4>};
  return all;
}

}  // namespace potl::numeric::projections
#endif

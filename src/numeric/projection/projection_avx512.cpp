// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX512F__)
#include "../elementwise/lanes_avx512.hpp"

#include "body.hpp"

namespace potl::numeric::projections {

const both_kernels& avx512_kernels() noexcept {
  static constexpr both_kernels all{kernels_of<f32x16>, kernels_of<f64x8>};
  return all;
}

}  // namespace potl::numeric::projections
#endif

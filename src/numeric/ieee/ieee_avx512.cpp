// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX512F__)
#include "numeric/elementwise/lanes_avx512.hpp"

#include "body.hpp"

namespace potl::numeric::ieee {

const both_kernels& avx512_kernels() noexcept {
  static constexpr both_kernels all{kernels_of<elementwise::f32x16>,
                                    kernels_of<elementwise::f64x8>};
  return all;
}

}  // namespace potl::numeric::ieee
#endif

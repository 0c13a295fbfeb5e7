// SPDX-License-Identifier: Apache-2.0
#include "numeric/gemm/modes.hpp"

namespace potl::numeric::detail {

#if defined(__x86_64__)

const kernels_f32& active_f32() {
  const isa level = active_isa();
  return level >= isa::avx512 ? avx512_f32() : level == isa::avx2 ? avx2_f32() : portable_f32();
}

const kernels_f64& active_f64() {
  const isa level = active_isa();
  return level >= isa::avx512 ? avx512_f64() : level == isa::avx2 ? avx2_f64() : portable_f64();
}

const kernels_widening& active_widening() {
  const isa level = active_isa();
  return level >= isa::avx512 ? avx512_widening()
         : level == isa::avx2 ? avx2_widening()
                              : portable_widening();
}

#else

const kernels_f32& active_f32() { return portable_f32(); }
const kernels_f64& active_f64() { return portable_f64(); }
const kernels_widening& active_widening() { return portable_widening(); }

#endif

}  // namespace potl::numeric::detail

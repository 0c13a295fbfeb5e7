// SPDX-License-Identifier: Apache-2.0
#include "numeric/gemm/modes.hpp"
#include "numeric/levels.hpp"

namespace potl::numeric::detail {

#if defined(__x86_64__)

const kernels_f32& active_f32() { return at_active_level(&portable_f32, &avx2_f32, &avx512_f32); }
const kernels_f64& active_f64() { return at_active_level(&portable_f64, &avx2_f64, &avx512_f64); }
const kernels_widening& active_widening() {
  return at_active_level(&portable_widening, &avx2_widening, &avx512_widening);
}

#elif defined(__aarch64__)

const kernels_f32& active_f32() { return at_active_level(&portable_f32, &neon_f32); }
const kernels_f64& active_f64() { return at_active_level(&portable_f64, &neon_f64); }
const kernels_widening& active_widening() {
  return at_active_level(&portable_widening, &neon_widening);
}

#else

const kernels_f32& active_f32() { return portable_f32(); }
const kernels_f64& active_f64() { return portable_f64(); }
const kernels_widening& active_widening() { return portable_widening(); }

#endif

}  // namespace potl::numeric::detail

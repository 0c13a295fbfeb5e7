// SPDX-License-Identifier: Apache-2.0
#include "numeric/gemm/modes.hpp"

namespace potl::numeric::detail {

const kernels_f32& active_f32() { return portable_f32(); }
const kernels_f64& active_f64() { return portable_f64(); }
const kernels_widening& active_widening() { return portable_widening(); }

}  // namespace potl::numeric::detail

// SPDX-License-Identifier: Apache-2.0
#include "numeric/gemm/integers_avx512.hpp"

namespace potl::numeric::detail {

const kernels_integer& avx512_integer() noexcept {
  return integer_table<vector_without_dot>::value;
}

}  // namespace potl::numeric::detail

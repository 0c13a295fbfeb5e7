// SPDX-License-Identifier: Apache-2.0
#include "registrar.hpp"

#include <ATen/ops/mul_ops.h>

namespace potl::libtorch::dispatch {

void register_exact(registrar& r) {
  r.exact({"view", "_unsafe_view", "as_strided", "copy_", "fill_.Scalar", "zero_"}, "moves bits");
  r.exact_real<at::_ops::mul_Tensor, at::_ops::mul__Tensor, at::_ops::mul_out>("one product");
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// Signs of numbers. Which sign a NaN has depends on the processor and on where in a vector it was
// made (torch's conversions to bfloat16): here it has none, so that no number depends on it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/copysign_ops.h>
#include <ATen/ops/signbit_ops.h>

#include "operand.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;

Tensor signbit(keys_t keys, const Tensor& x) {
  const Tensor sign = at::_ops::signbit::redispatch(keys & below, x);
  return is_integral(x) ? sign : sign.bitwise_and(x.eq(x));
}

Tensor copysign(keys_t keys, const Tensor& x, const Tensor& y) {
  Tensor sign = y;
  if (!is_integral(y)) {
    const Tensor none = y.isnan();
    if (none.any().item<bool>()) {
      sign = y.masked_fill(none, 0);
      if (y.unsafeGetTensorImpl()->is_wrapped_number()) {
        sign.unsafeGetTensorImpl()->set_wrapped_number(true);
      }
    }
  }
  return at::_ops::copysign_Tensor::redispatch(keys & below, x, sign);
}

}  // namespace

void register_signs(registrar& r) {
  r.kernel<signbit>("signbit", "of NaN as of +0", {"signbit.out"});
  r.kernel<copysign>("copysign.Tensor", "a NaN counts as +0", {"copysign.out", "copysign_.Tensor"});
  r.composed({"copysign.Scalar", "copysign.Scalar_out", "copysign_.Scalar"},
             "the operator of two tensors");
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
#include "operand.hpp"

#include <string>

#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace potl::libtorch::dispatch {

c10::ScalarType compute_type(const char* name, c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Double: return type;
    case c10::ScalarType::Float:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Half: return c10::ScalarType::Float;
    default: break;
  }
  if (c10::isIntegralType(type, /*includeBool=*/true)) {
    return c10::typeMetaToScalarType(c10::get_default_dtype());
  }
  refuse(std::string(name) + " of " + c10::toString(type), "use float32, float64 or bfloat16");
}

c10::ScalarType result_type(const at::Tensor& operand) {
  return is_integral(operand) ? c10::typeMetaToScalarType(c10::get_default_dtype())
                              : operand.scalar_type();
}

void require_plain(const char* name, const at::Tensor& operand) {
  if (operand.is_nested()) {
    refuse(std::string(name) + " of a nested tensor", "use a padded one, with a mask");
  }
  if (operand.layout() != c10::kStrided) {
    refuse(std::string(name) + " of a tensor with layout " + c10::str(operand.layout()),
           "use a dense tensor: call to_dense() before the block");
  }
  if (!operand.device().is_cpu()) {
    refuse(std::string(name) + " on " + operand.device().str(),
           "reproducible arithmetic runs on the CPU: move the tensors there");
  }
}

at::Tensor row_major(const char* name, const at::Tensor& operand, c10::ScalarType type) {
  require_plain(name, operand);
  return (operand.scalar_type() == type ? operand : operand.to(type)).contiguous();
}

at::Tensor dense(const char* name, const at::Tensor& operand, c10::ScalarType type) {
  require_plain(name, operand);
  const at::Tensor typed = operand.scalar_type() == type ? operand : operand.to(type);
  return typed.is_non_overlapping_and_dense() ? typed : typed.contiguous();
}

at::Tensor like(const at::Tensor& dense_operand) { return at::empty_like(dense_operand); }

at::Tensor make(c10::IntArrayRef sizes, c10::ScalarType type) {
  return at::empty(sizes, at::TensorOptions(type));
}

at::Tensor rounded_to(const at::Tensor& result, c10::ScalarType type) {
  return result.scalar_type() == type ? result : result.to(type);
}

at::Tensor& write_out(const at::Tensor& result, at::Tensor& out) {
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ",
              result.scalar_type(), " can't be cast to the desired output type ",
              out.scalar_type());
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

}  // namespace potl::libtorch::dispatch

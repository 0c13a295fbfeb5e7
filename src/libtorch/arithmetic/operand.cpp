// SPDX-License-Identifier: Apache-2.0
#include "operand.hpp"

#include <string>
#include <utility>

#include <ATen/native/Resize.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sort.h>

#include "device.hpp"
#include "turning.hpp"

namespace potl::libtorch::dispatch {

c10::ScalarType compute_type(operator_name name, c10::ScalarType type) {
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
  refuse(std::string(name.text) + " of " + c10::toString(type),
         c10::isComplexType(type)
             ? "use real tensors: torch.view_as_real(z), or z.abs(); a square is z * z"
             : "use float32, float64 or bfloat16");
}

c10::ScalarType result_type(const at::Tensor& operand) {
  return is_integral(operand) ? c10::typeMetaToScalarType(c10::get_default_dtype())
                              : operand.scalar_type();
}

void require_plain(operator_name name, const at::Tensor& operand) {
  if (operand.is_nested()) {
    refuse(std::string(name.text) + " of a nested tensor", "use a padded one, with a mask");
  }
  if (operand.layout() != c10::kStrided) {
    refuse(std::string(name.text) + " of a tensor with layout " + c10::str(operand.layout()),
           "use a dense tensor: call to_dense() before the block");
  }
  if (is_on_device(operand)) {
    if (name.anywhere) return;
    refuse(std::string(name.text) + " on " + operand.device().str(),
           "it has no form for this device, see docs/reference/cuda.md: move its operands to the "
           "CPU");
  }
  if (!operand.device().is_cpu()) {
    refuse(std::string(name.text) + " on " + operand.device().str(),
           "this potl has no kernels for the device, see docs/reference/cuda.md: move the tensors "
           "to the CPU");
  }
}

void require_beside(operator_name name, const at::Tensor& first, const at::Tensor& other) {
  TORCH_CHECK(!other.defined() || other.device() == first.device(), name.text,
              ": expected operands on one device, got ", first.device(), " and ", other.device(),
              ": move all to one with .to(device)");
}

void require_float(operator_name name, const at::Tensor& operand, c10::ScalarType type) {
  if (type == c10::ScalarType::Double && is_on_device(operand)) {
    refuse(std::string(name.text) + " of float64 on " + operand.device().str(),
           "use float32 there, or move the operands to the CPU");
  }
}

at::Tensor row_major(operator_name name, const at::Tensor& operand, c10::ScalarType type) {
  require_plain(name, operand);
  require_float(name, operand, type);
  const at::Tensor there = in_format(operand);
  return there.scalar_type() == type ? there : there.to(type);
}

at::Tensor dense(operator_name name, const at::Tensor& operand, c10::ScalarType type) {
  require_plain(name, operand);
  require_float(name, operand, type);
  const at::Tensor typed = operand.scalar_type() == type ? operand : operand.to(type);
  return typed.is_non_overlapping_and_dense() ? typed : typed.contiguous();
}

at::Tensor like(const at::Tensor& dense_operand) { return at::empty_like(dense_operand); }

at::Tensor make(c10::IntArrayRef sizes, c10::ScalarType type) {
  return at::empty(sizes, at::TensorOptions(type));
}

at::Tensor make_beside(const at::Tensor& other, c10::IntArrayRef sizes, c10::ScalarType type) {
  return at::empty(sizes, at::TensorOptions(type).device(other.device()));
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

at::Tensor number_there(const at::Tensor& number, const at::TensorOptions& options) {
  // Rounded here: a fill refuses numbers beyond its type.
  const at::Tensor rounded = number.to(c10::typeMetaToScalarType(options.dtype()));
  return at::full(number.sizes(), rounded.item(), options);
}

namespace {

/// The bytes of its storage between which a tensor lies.
std::pair<std::int64_t, std::int64_t> reach_of(const at::Tensor& tensor) {
  std::int64_t last = tensor.storage_offset();
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto width = static_cast<std::int64_t>(tensor.itemsize());
  return {tensor.storage_offset() * width, (last + 1) * width};
}

}  // namespace

bool lies_under(const at::Tensor& to, const at::Tensor& operand) {
  if (!to.defined() || !operand.defined() || to.is_same(operand)) return false;
  if (!to.has_storage() || !operand.has_storage() || !to.is_alias_of(operand)) return false;
  if (to.numel() == 0 || operand.numel() == 0) return false;
  const auto [begin, end] = reach_of(to);
  const auto [first, last] = reach_of(operand);
  return first < end && begin < last;
}

void require_distinct(const at::Tensor& places) {
  if (!is_elsewhere(places) || places.numel() < 2) return;
  const at::Tensor sorted = std::get<0>(at::sort(places));
  if (!sorted.slice(0, 1).eq(sorted.slice(0, 0, -1)).any().item<bool>()) return;
  refuse("scatter of several values for one place on " + places.device().str(),
         "leave one for each, or move the tensors to the CPU");
}

}  // namespace potl::libtorch::dispatch

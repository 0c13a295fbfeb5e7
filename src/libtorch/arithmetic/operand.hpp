// SPDX-License-Identifier: Apache-2.0
// Tensors as the kernels of potl::numeric want them, and results as torch's callers want them.
//
// Policy for types: float32 is computed in float32, float64 in float64; bfloat16 and float16 are
// widened to float32 and every result is rounded once; integers become the default type where torch
// promotes them. Complex numbers, other types and other devices are refused.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include <ATen/core/Tensor.h>

#include "mode.hpp"

namespace potl::libtorch::dispatch {

/// An operator, as refusals call it, and whether it has a form for other devices than the CPU.
struct operator_name {
  // NOLINTNEXTLINE(google-explicit-constructor): most have none
  constexpr operator_name(const char* spelled, bool is_anywhere = false)
      : text(spelled), anywhere(is_anywhere) {}
  const char* text;
  bool anywhere;
};
constexpr operator_name on_devices(const char* name) { return {name, true}; }

/// kFloat or kDouble: what `name` computes in for operands of this type.
c10::ScalarType compute_type(operator_name name, c10::ScalarType type);

/// Calls body(float{}) or body(double{}).
template <class Body>
void with_real(c10::ScalarType type, const Body& body) {
  if (type == c10::ScalarType::Double) {
    body(double{});
  } else {
    body(float{});
  }
}

/// The type of the result of a floating-point function of such an operand.
c10::ScalarType result_type(const at::Tensor& operand);

/// Refuses devices for which the operator has no form, and layouts that are not plain strided
/// memory.
void require_plain(operator_name name, const at::Tensor& operand);
/// Throws where operands are on several devices: kernels get addresses, which do not say of what
/// memory. An operand may be an optional tensor; undefined ones are on any.
void require_beside(operator_name name, const at::Tensor& first, const at::Tensor& other);
template <class... Others>
void require_one_device(operator_name name, const at::Tensor& first, const Others&... others) {
  const auto check = [&](const auto& other) {
    if constexpr (std::is_same_v<std::decay_t<decltype(other)>, at::Tensor>) {
      require_beside(name, first, other);
    } else if (other.has_value()) {
      require_beside(name, first, *other);
    }
  };
  (check(others), ...);
}
/// On a device, refuses types other than float32 to compute in.
void require_float(operator_name name, const at::Tensor& operand, c10::ScalarType type);

/// Whether a tensor has memory that the CPU does not see.
inline bool is_elsewhere(const at::Tensor& tensor) {
  return !tensor.device().is_cpu() && !tensor.device().is_meta();
}
/// A number of the CPU as a tensor of a device: filled in there, because a copy would wait for all
/// that is queued.
at::Tensor number_there(const at::Tensor& number, const at::TensorOptions& options);
/// Refuses a place that comes twice on a device, where which value comes last is a matter of
/// chance.
void require_distinct(const at::Tensor& places);

/// Whether an operand shares memory with `to`, which is to be written, without being that tensor:
/// torch's kernels read and write such memory at once, in the order of the processor and of the
/// threads. (Where they notice, they stop. They notice only what has no gaps.)
bool lies_under(const at::Tensor& to, const at::Tensor& operand);

/// Whether a kernel has integers alone to work on: then it calls the stock kernel.
inline bool is_integral(const at::Tensor& operand) {
  return c10::isIntegralType(operand.scalar_type(), /*includeBool=*/true);
}

/// Row-major values of that type: the operand itself where it is that already.
at::Tensor row_major(operator_name name, const at::Tensor& operand, c10::ScalarType type);

/// The operand where its elements fill their memory without gaps in some order of dimensions
/// (channels_last, transposed), else a row-major copy; of that type. For elementwise kernels: they
/// run over the memory, and `like(...)` makes the result with the same layout.
at::Tensor dense(operator_name name, const at::Tensor& operand, c10::ScalarType type);

/// An uninitialised tensor with the sizes and layout of a dense operand.
at::Tensor like(const at::Tensor& dense_operand);

/// An uninitialised row-major tensor on the CPU.
at::Tensor make(c10::IntArrayRef sizes, c10::ScalarType type);
/// The same on the device of another tensor.
at::Tensor make_beside(const at::Tensor& other, c10::IntArrayRef sizes, c10::ScalarType type);

/// The memory of a dense tensor.
template <class Real>
std::span<const Real> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<Real>(), static_cast<std::size_t>(tensor.numel())};
}
template <class Real>
std::span<Real> mutable_values(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<Real>(), static_cast<std::size_t>(tensor.numel())};
}

/// `result` rounded to the type that torch's kernel would return.
at::Tensor rounded_to(const at::Tensor& result, c10::ScalarType type);

/// Resizes `out` like torch's out= forms do, and copies.
at::Tensor& write_out(const at::Tensor& result, at::Tensor& out);

}  // namespace potl::libtorch::dispatch

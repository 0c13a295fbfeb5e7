// SPDX-License-Identifier: Apache-2.0
#include "fallback.hpp"

#include <algorithm>
#include <span>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "mode.hpp"
#include "operand.hpp"

namespace potl::libtorch::dispatch {
namespace {

bool exact_type(c10::ScalarType type) { return c10::isIntegralType(type, /*includeBool=*/true); }

/// Whether a value has no floating-point number in it.
bool exact_value(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return !tensor.defined() || exact_type(tensor.scalar_type());
  }
  if (value.isDouble() || value.isComplexDouble()) return false;
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (!exact_value(element)) return false;
    }
  }
  return true;
}

bool exact_values(const ::torch::jit::Stack& stack, std::size_t count) {
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (!exact_value(stack[i])) return false;
  }
  return true;
}

/// What to do instead of operators whose names begin so; the first that fits.
struct hint {
  std::string_view begins;
  const char* remedy;
};
constexpr const char* decomposition =
    "compute it outside the block, and let the result enter as an operand; LU, Cholesky, QR, eigh "
    "and svd have reproducible forms, and so have solve, lstsq, inv, pinv and det";
constexpr const char* function =
    "potl has no polynomial for this function: compute it outside the block, and let the result "
    "enter as an operand";
constexpr const char* dense =
    "use dense tensors, or edge_index instead of a sparse adjacency in torch_geometric; to_dense() "
    "before the block makes them";
constexpr const char* regions = "use torchvision.ops.roi_align";
constexpr const char* straight_through =
    "write c = x.clamp((quant_min - zero_point) * scale, (quant_max - zero_point) * scale) and "
    "c + ((c / scale).round() * scale - c).detach(), whose gradient is 1 in the range and 0 beyond";
constexpr hint hints[] = {
    {"linalg_", decomposition},
    {"_linalg_", decomposition},
    {"cholesky", decomposition},
    {"triangular_solve", decomposition},
    {"lu_", decomposition},
    {"geqrf", decomposition},
    {"ormqr", decomposition},
    {"igamma", function},
    {"special_", function},
    {"roi_pool", regions},
    {"ps_roi_", regions},
    {"sparse_", dense},
    {"_sparse_", dense},
    {"_scaled_dot_product_",
     "call torch.nn.functional.scaled_dot_product_attention in Python, where a block composes "
     "it on a GPU as on the CPU"},
    {"hist", "torch.bucketize finds the bins, torch.bincount without weights counts"},
    {"_hist", "torch.bucketize finds the bins, torch.bincount without weights counts"},
    {"_fake_quantize_learnable_", straight_through},
    {"_fused_moving_avg_obs_",
     "make the qconfig with version=0, whose observers are operators of "
     "their own: get_default_qat_qconfig('x86', version=0)"},
    {"bincount", "torch.zeros(n).index_add(0, index, weights)"},
};

std::string remedy_for(const std::string& name) {
  std::string remedy = remedy_of(name);
  if (!remedy.empty()) return remedy;
  for (const hint& one : hints) {
    if (name.rfind(one.begins, 0) == 0) return one.remedy;
  }
  return "use an operator that docs/reference/operators.md lists as reproducible, or run this one "
         "outside the block";
}

bool has_memory(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor()) ||
         argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
}

void put_apart(c10::IValue& value, const at::Tensor& to) {
  if (value.isTensor() && lies_under(to, value.toTensor())) value = value.toTensor().clone();
  if (!value.isTensorList()) return;
  c10::List<at::Tensor> apart = value.toTensorList().copy();
  for (std::size_t i = 0; i < apart.size(); ++i) {
    if (const at::Tensor one = apart[i]; lies_under(to, one)) apart[i] = one.clone();
  }
  value = apart;
}

void put_operands_apart(const c10::FunctionSchema& schema, ::torch::jit::Stack& stack) {
  const auto& arguments = schema.arguments();
  const std::span given = std::span(stack).last(arguments.size());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!is_written(arguments[i]) || !given[i].isTensor()) continue;
    for (std::size_t other = 0; other < arguments.size(); ++other) {
      if (!is_written(arguments[other])) put_apart(given[other], given[i].toTensor());
    }
  }
}

void apart_then_stock(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                      ::torch::jit::Stack* stack) {
  put_operands_apart(handle.schema(), *stack);
  handle.redispatchBoxed(keys & below, stack);
}

[[noreturn]] void refuse_operator(const c10::OperatorHandle& handle) {
  const auto& schema = handle.schema();
  std::string name = schema.name();
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  refuse("the operator " + name + " is not reproducible",
         remedy_for(name.substr(name.find("::") + 2)));
}

void integers_or_refuse(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                        ::torch::jit::Stack* stack) {
  if (lets_through()) return handle.redispatchBoxed(keys & below, stack);
  if (!exact_values(*stack, handle.schema().arguments().size())) refuse_operator(handle);
  apart_then_stock(handle, keys, stack);
  if (!exact_values(*stack, handle.schema().returns().size())) refuse_operator(handle);
}

bool has_elsewhere(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && is_elsewhere(tensor);
  }
  if (!value.isTensorList() && !value.isOptionalTensorList()) return false;
  for (const c10::IValue& element : value.toListRef()) {
    if (has_elsewhere(element)) return true;
  }
  return false;
}

void cpu_or_refuse(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                   ::torch::jit::Stack* stack) {
  const std::size_t count = handle.schema().arguments().size();
  for (std::size_t i = stack->size() - count; !lets_through() && i < stack->size(); ++i) {
    if (!has_elsewhere((*stack)[i])) continue;
    refuse("the operator " + handle.schema().name() + " is not reproducible on a GPU",
           "move its operands to the CPU");
  }
  apart_then_stock(handle, keys, stack);
}

}  // namespace

::torch::CppFunction boxed_cpu_alone() {
  return ::torch::CppFunction::makeFromBoxedFunction<&cpu_or_refuse>();
}

::torch::CppFunction boxed_fallback() {
  return ::torch::CppFunction::makeFromBoxedFunction<&integers_or_refuse>();
}

bool writes_beside_others(const c10::FunctionSchema& schema) {
  const auto& all = schema.arguments();
  return std::any_of(all.begin(), all.end(), is_written) &&
         std::count_if(all.begin(), all.end(), has_memory) > 1;
}

::torch::CppFunction boxed_apart() {
  return ::torch::CppFunction::makeFromBoxedFunction<&apart_then_stock>();
}

::torch::CppFunction boxed_refusal() { return boxed_fallback(); }

}  // namespace potl::libtorch::dispatch

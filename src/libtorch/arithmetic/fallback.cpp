// SPDX-License-Identifier: Apache-2.0
#include "fallback.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "mode.hpp"

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

[[noreturn]] void refuse_operator(const c10::OperatorHandle& handle) {
  const auto& schema = handle.schema();
  std::string name = schema.name();
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  std::string remedy = remedy_of(name.substr(name.find("::") + 2));
  if (remedy.empty()) {
    remedy =
        "docs/operators.md lists the operators that have a reproducible form: write it with those, "
        "or run it outside of the block";
  }
  refuse("the operator " + name + " is not reproducible", remedy);
}

void integers_or_refuse(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                        ::torch::jit::Stack* stack) {
  if (!exact_values(*stack, handle.schema().arguments().size())) refuse_operator(handle);
  handle.redispatchBoxed(keys & below, stack);
  if (!exact_values(*stack, handle.schema().returns().size())) refuse_operator(handle);
}

}  // namespace

::torch::CppFunction boxed_fallback() {
  return ::torch::CppFunction::makeFromBoxedFunction<&integers_or_refuse>();
}

::torch::CppFunction boxed_refusal() { return boxed_fallback(); }

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// How kernels of torchvision's operators are registered. torchvision may be loaded later, or never,
// and its schemas may gain arguments: so the kernels take what is on the stack, and refuse what
// they do not know.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "fallback.hpp"
#include "mode.hpp"

namespace potl::libtorch::dispatch {

using arguments = c10::ArrayRef<c10::IValue>;

/// `Call` takes the operands of an operator that has so many, and appends its results.
template <void (*Call)(arguments, ::torch::jit::Stack&), std::size_t Count>
void call_of_torchvision(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                         ::torch::jit::Stack* stack) {
  if (lets_through()) return handle.redispatchBoxed(keys & below, stack);
  if (handle.schema().arguments().size() != Count) {
    refuse("the operator " + handle.schema().name() + " is not the one that potl knows",
           "use another version of torchvision");
  }
  ::torch::jit::Stack results;
  Call(::torch::jit::last(*stack, Count), results);
  ::torch::jit::drop(*stack, Count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

template <void (*Call)(arguments, ::torch::jit::Stack&), std::size_t Count>
::torch::CppFunction of_torchvision() {
  return ::torch::CppFunction::makeFromBoxedFunction<&call_of_torchvision<Call, Count>>();
}

/// Deformable convolutions.
void register_deformable(::torch::Library& library);

}  // namespace potl::libtorch::dispatch

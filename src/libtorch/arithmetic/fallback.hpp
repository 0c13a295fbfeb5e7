// SPDX-License-Identifier: Apache-2.0
// What happens to operators that have no entry in the table.
#pragma once

#include <string>

#include <torch/library.h>

namespace potl::libtorch::dispatch {

/// Runs the stock kernel when nothing floating-point goes in or comes out, else refuses.
::torch::CppFunction boxed_fallback();

/// The same for one operator that has a kernel of its own.
::torch::CppFunction boxed_refusal();

/// Runs the stock kernel on the CPU, and refuses tensors of other devices.
::torch::CppFunction boxed_cpu_alone();

inline bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// Whether an operator writes to one of several operands that may have memory in common.
bool writes_beside_others(const c10::FunctionSchema& schema);

/// Runs the stock kernel, with copies of the operands that lie under one that it writes to.
::torch::CppFunction boxed_apart();

/// Whether this thread runs what a mode refuses as stock instead: operators without an entry, and
/// tensors that are not dense. A verifier who measures noise needs other roundings, not the same
/// bits everywhere. Returns what was so before.
bool let_through(bool on) noexcept;
bool lets_through() noexcept;

/// What the table says to do instead; empty when it says nothing.
std::string remedy_of(const std::string& name);

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// Reproducible arithmetic under LibTorch: while a guard lives, every tensor operator that its
// thread calls (backward passes and optimizers included) is a function of its operands' bits alone.
//
// Claims: an operator runs as a stock kernel that does one IEEE operation per element (or moves
// bits), or as potl's kernel, or as a composition of such; docs/reference/operators.md lists which.
// Any other throws not_reproducible, which names it. Same bits for any number of threads and
// instruction set.
// Assumes: tensors on the CPU (in Python also on CUDA devices, docs/reference/cuda.md); the
// floating-point environment that the guard has tested, in the calling thread and in torch's
// workers.
// Cost: one dispatch in C++; none while no guard lives.
// Cannot see: other threads (an operator there runs as stock), a graph built under a guard whose
// backward pass runs outside (Python's `potl.deterministic` refuses it), arithmetic in C++ itself:
// LibTorch's own Adam and AdamW take powers with the platform's libm.
//
// Needs the compiled part of the adapter: link potl::libtorch_arithmetic (docs/guide/libtorch.md).
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <potl/numeric/arithmetic.hpp>

namespace potl::numeric {
class rounding_session;
}  // namespace potl::numeric

namespace potl::libtorch {

/// An operator whose result would depend on the machine. `remedy` says what to use instead.
class not_reproducible : public std::runtime_error {
 public:
  not_reproducible(const std::string& message, std::string remedy)
      : std::runtime_error(remedy.empty() ? message : message + " (" + remedy + ")"),
        message_(message),
        remedy_(std::move(remedy)) {}
  const std::string& message() const noexcept { return message_; }
  const std::string& remedy() const noexcept { return remedy_; }

 private:
  std::string message_;
  std::string remedy_;
};

/// Puts the calling thread under a mode until it is destroyed (in the same thread). Nests, in the
/// same mode only. `bits` is for log64: 23 to 32. Throws not_reproducible when the floating-point
/// environment of this thread or of a worker of torch's pool is not IEEE's, potl::exception (usage)
/// inside another mode.
class deterministic_guard {
 public:
  explicit deterministic_guard(numeric::arithmetic mode = numeric::arithmetic::ord32,
                               int bits = 32);
  deterministic_guard(const deterministic_guard&) = delete;
  deterministic_guard& operator=(const deterministic_guard&) = delete;
  ~deterministic_guard();
};

/// Gives a block of code (a data loader) stock arithmetic back inside a guard. A guard in there
/// is an outermost one.
class stock_guard {
 public:
  stock_guard() noexcept;
  stock_guard(const stock_guard&) = delete;
  stock_guard& operator=(const stock_guard&) = delete;
  ~stock_guard();

 private:
  bool was_on_;
  int depth_;
  numeric::arithmetic mode_;
  int bits_;
  bool foreign_;
  bool multithreaded_;
};

/// What the steps of a workload compute in.
struct block_options {
  numeric::arithmetic mode = numeric::arithmetic::ord32;
  /// Runs operators that have no form in the mode as LibTorch does, instead of refusing them, and
  /// random ones too: who measures noise needs other roundings, not the same bits everywhere.
  bool lenient = false;
  /// For log64: the side that logs or follows, in a step that it has begun. It gives the bits.
  numeric::rounding_session* log = nullptr;
};

/// Enters a block, which ends with the last copy of what is given, in the same thread.
using block_maker = std::function<std::shared_ptr<void>(const block_options&)>;

/// A deterministic_guard as a block. A task that names it (libtorch::task::exact) may be trained in
/// any exact arithmetic. Throws as the guard does.
std::shared_ptr<void> exact_block(const block_options& options);

/// How an operator runs under a guard.
struct operator_entry {
  std::string name;  ///< as torch spells it, without "aten::", e.g. "add.Tensor"
  std::string runs;  ///< "exact", "kernel", "composed" or "refused"
  std::string note;  ///< what is computed, or the remedy
};

/// Every operator with an entry, by name. What has none, and is not composed of others, is refused.
std::vector<operator_entry> operators();

}  // namespace potl::libtorch

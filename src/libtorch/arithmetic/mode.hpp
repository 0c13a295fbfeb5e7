// SPDX-License-Identifier: Apache-2.0
// What the kernels know of the block that they run in, and how they refuse.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/DispatchKeySet.h>

#include <potl/numeric/arithmetic.hpp>
#include <potl/numeric/detail/executor.hpp>

namespace potl::libtorch::dispatch {

/// The dispatch key that a block switches on in its thread: below autograd and autocast, above the
/// CPU's kernels, and not used by torch itself.
constexpr c10::DispatchKey key = c10::DispatchKey::CustomRNGKeyId;
/// The one that it switches on above autograd and the transforms of torch.func (torch itself uses
/// it in its tests alone), for operators whose gradients depend on the version of torch (ties.cpp).
constexpr c10::DispatchKey key_above_autograd = c10::DispatchKey::TESTING_ONLY_GenericMode;
/// What is left for a stock kernel that is called from one of ours.
constexpr c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, key);

/// Registers all operators; the first call does it, before any thread can be under a mode.
void ensure_registered();

/// The mode of this thread. Refuses when it is not in a block: torch hands its thread-local state
/// to threads that it starts.
numeric::arithmetic mode();

/// Whether this thread computes under a mode now.
bool is_on() noexcept;

/// How many random operators have drawn under modes, in this process.
std::uint64_t random_draws() noexcept;

/// torch's thread pool.
const numeric::executor& executor() noexcept;

/// Throws not_reproducible (in Python, potl.NotReproducible).
[[noreturn]] void refuse(const std::string& message, const std::string& remedy);
/// What `refuse` calls instead of throwing by itself, when it is set: it throws.
using thrower = void (*)(const std::string& message, const std::string& remedy);
void set_thrower(thrower how) noexcept;

/// Puts a thread that was started inside of another thread's block on guard: what needs the mode,
/// and what is not reproducible, is refused there.
class foreign_guard {
 public:
  foreign_guard() noexcept;
  foreign_guard(const foreign_guard&) = delete;
  foreign_guard& operator=(const foreign_guard&) = delete;
  ~foreign_guard();

 private:
  bool was_on_;
};

/// Whether a thread made the autograd node with this number inside of a block.
bool made_inside(std::uint64_t thread, std::uint64_t sequence) noexcept;

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <pthread.h>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <potl/core/error.hpp>
#include <potl/libtorch/arithmetic.hpp>

#include "environment.hpp"
#include "fallback.hpp"
#include "mode.hpp"
#include "rounding.hpp"

namespace potl::libtorch {
namespace dispatch {
namespace {

struct thread_state {
  int depth = 0;
  numeric::arithmetic mode = numeric::arithmetic::ord32;
  int bits = 32;
  bool foreign = false;       // the thread was started inside another thread's block
  bool multithreaded = true;  // backward passes, before the block
};
thread_local thread_state here;
thread_local bool is_lenient = false;

thrower throw_hook = nullptr;

/// The autograd nodes of blocks, as numbers that torch gives them in each thread.
class node_ranges {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    std::deque<range>& ranges = ranges_[at::RecordFunction::currentThreadId()];
    const std::uint64_t now = at::sequence_number::peek();
    // A loop of blocks with nothing between them is one range.
    if (!ranges.empty() && ranges.back().last == now) {
      ranges.back().last = open;
      return;
    }
    ranges.push_back({now, open});
    if (ranges.size() > most) ranges.pop_front();
  }

  void end() {
    const std::lock_guard lock(mutex_);
    std::deque<range>& ranges = ranges_[at::RecordFunction::currentThreadId()];
    if (!ranges.empty()) ranges.back().last = at::sequence_number::peek();
  }

  bool contains(std::uint64_t thread, std::uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    const auto found = ranges_.find(thread);
    if (found == ranges_.end()) return false;
    // The last range that begins at `sequence` or before.
    const auto after =
        std::upper_bound(found->second.begin(), found->second.end(), sequence,
                         [](std::uint64_t value, const range& of) { return value < of.first; });
    return after != found->second.begin() && sequence < std::prev(after)->last;
  }

 private:
  struct range {
    std::uint64_t first;
    std::uint64_t last;
  };
  static constexpr std::uint64_t open = ~std::uint64_t{0};
  static constexpr std::size_t most = 1 << 16;  // graphs older than so many blocks are forgotten
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::deque<range>> ranges_;  // ascending, of each thread
};

node_ranges& nodes() {
  static auto* ranges = new node_ranges;
  return *ranges;
}

std::string spelled(numeric::arithmetic mode, int bits) {
  std::string text = to_string(mode);
  if (mode == numeric::arithmetic::log64) text += " of " + std::to_string(bits) + " bits";
  return text;
}

/// Kernels for tensors that are not dense lie above `key`: with these left out such tensors come to
/// ours, which refuse them, or to the CPU's, which cannot read them.
constexpr c10::DispatchKey not_dense[] = {c10::DispatchKey::MkldnnCPU, c10::DispatchKey::Sparse,
                                          c10::DispatchKey::SparseCsr,
                                          c10::DispatchKey::NestedTensor};

void switch_key(bool on) {
  c10::impl::tls_set_dispatch_key_included(key, on);
  c10::impl::tls_set_dispatch_key_included(key_above_autograd, on);
  for (const c10::DispatchKey one : not_dense) {
    c10::impl::tls_set_dispatch_key_excluded(one, on && !is_lenient);
  }
}

/// A forked process (a worker of a data loader) starts outside of the block.
void leave_after_fork() {
  is_lenient = false;
  if (!is_on() && here.depth == 0) return;
  here = {};
  switch_key(false);
}

}  // namespace

numeric::arithmetic mode() {
  if (here.depth == 0) {
    refuse("another thread than the one that entered the block computes in it",
           "compute in the thread that entered the block, or enter a block in this thread too");
  }
  return here.mode;
}

int block_bits() noexcept { return here.bits; }

bool is_on() noexcept { return c10::impl::tls_is_dispatch_key_included(key); }

bool lets_through() noexcept { return is_lenient; }

bool let_through(bool on) noexcept {
  const bool before = std::exchange(is_lenient, on);
  switch_key(is_on());
  return before;
}

void refuse(const std::string& message, const std::string& remedy) {
  if (throw_hook != nullptr) throw_hook(message, remedy);
  throw not_reproducible(message, remedy);
}

void set_thrower(thrower how) noexcept { throw_hook = how; }

bool made_inside(std::uint64_t thread, std::uint64_t sequence) noexcept {
  return nodes().contains(thread, sequence);
}

}  // namespace dispatch

deterministic_guard::deterministic_guard(numeric::arithmetic mode, int bits) {
  using dispatch::here;
  if (bits < 23 || bits > 32) {
    throw exception({errc::usage, "log64 rounds to 23 to 32 bits", ""});
  }
  if (here.depth > 0) {
    if (here.mode != mode || here.bits != bits) {
      throw exception({errc::usage,
                       std::string("this thread computes in ") +
                           dispatch::spelled(here.mode, here.bits) + ", not in " +
                           dispatch::spelled(mode, bits),
                       "leave the outer block first"});
    }
    ++here.depth;
    return;
  }
  dispatch::ensure_registered();
  static const int forks = pthread_atfork(nullptr, nullptr, &dispatch::leave_after_fork);
  static_cast<void>(forks);
  dispatch::require_ieee();
  // Gradients of devices are computed in this thread, too, and not in torch's one for each.
  auto& autograd = c10::AutogradState::get_tls_state();
  here = {1, mode, bits, dispatch::is_on(), autograd.get_multithreading_enabled()};
  autograd.set_multithreading_enabled(false);
  dispatch::nodes().begin();
  dispatch::switch_key(true);
}

deterministic_guard::~deterministic_guard() {
  using dispatch::here;
  if (here.depth == 0 || --here.depth > 0) return;  // 0: this is a forked process
  dispatch::switch_key(here.foreign);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(here.multithreaded);
  dispatch::nodes().end();
}

stock_guard::stock_guard() noexcept
    : was_on_(dispatch::is_on()),
      depth_(dispatch::here.depth),
      mode_(dispatch::here.mode),
      bits_(dispatch::here.bits),
      foreign_(dispatch::here.foreign),
      multithreaded_(dispatch::here.multithreaded) {
  if (!was_on_) return;
  dispatch::switch_key(false);
  if (depth_ > 0) dispatch::nodes().end();
  dispatch::here.depth = 0;  // a guard in here is an outermost one
}

stock_guard::~stock_guard() {
  if (!was_on_) return;
  dispatch::here = {depth_, mode_, bits_, foreign_, multithreaded_};
  if (depth_ > 0) dispatch::nodes().begin();
  dispatch::switch_key(true);
}

namespace dispatch {

foreign_guard::foreign_guard() noexcept : was_on_(is_on()) { switch_key(true); }

foreign_guard::~foreign_guard() { switch_key(was_on_); }

}  // namespace dispatch

}  // namespace potl::libtorch

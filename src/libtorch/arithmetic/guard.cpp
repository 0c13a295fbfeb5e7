// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <mutex>
#include <optional>

#include <pthread.h>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <potl/core/error.hpp>
#include <potl/libtorch/arithmetic.hpp>
#include <potl/numeric/fp_environment.hpp>

#include "mode.hpp"

namespace potl::libtorch {
namespace dispatch {
namespace {

struct thread_state {
  int depth = 0;
  numeric::arithmetic mode = numeric::arithmetic::ord32;
};
thread_local thread_state here;

thrower throw_hook = nullptr;

/// The autograd nodes of blocks, as numbers that torch gives them in each thread.
class node_ranges {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    const range now = {at::RecordFunction::currentThreadId(), at::sequence_number::peek(), open};
    // A loop of blocks with nothing between them is one range.
    if (!ranges_.empty() && ranges_.back().thread == now.thread &&
        ranges_.back().last == now.first) {
      ranges_.back().last = open;
      return;
    }
    ranges_.push_back(now);
    if (ranges_.size() > most) ranges_.pop_front();
  }

  void end() {
    const std::lock_guard lock(mutex_);
    const std::uint64_t thread = at::RecordFunction::currentThreadId();
    for (auto at = ranges_.rbegin(); at != ranges_.rend(); ++at) {
      if (at->thread != thread || at->last != open) continue;
      at->last = at::sequence_number::peek();
      return;
    }
  }

  bool contains(std::uint64_t thread, std::uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    for (auto at = ranges_.rbegin(); at != ranges_.rend(); ++at) {
      if (at->thread == thread && at->first <= sequence && sequence < at->last) return true;
    }
    return false;
  }

 private:
  struct range {
    std::uint64_t thread;
    std::uint64_t first;
    std::uint64_t last;
  };
  static constexpr std::uint64_t open = ~std::uint64_t{0};
  static constexpr std::size_t most = 1 << 16;  // graphs older than so many blocks are forgotten
  std::mutex mutex_;
  std::deque<range> ranges_;
};

node_ranges& nodes() {
  static auto* ranges = new node_ranges;
  return *ranges;
}

void require_ieee() {
  std::mutex mutex;
  std::string cause;
  const std::size_t threads = executor().concurrency();
  executor().run(threads, [&](std::size_t) {
    for (const fp_check& check : fp_environment()) {
      if (check.ok) continue;
      const std::lock_guard lock(mutex);
      if (cause.empty()) cause = check.cause;
    }
  });
  if (cause.empty()) return;
  refuse("the floating-point environment is not that of IEEE 754: " + cause,
         "import potl before the library that changes it, or do without that library");
}

/// A forked process (a worker of a data loader) starts outside of the block.
void leave_after_fork() {
  if (here.depth == 0) return;
  here = {};
  c10::impl::tls_set_dispatch_key_included(key, false);
}

}  // namespace

numeric::arithmetic mode() {
  if (here.depth == 0) {
    refuse("a thread that torch started inherited reproducible arithmetic from another",
           "a block belongs to one thread: compute in the thread that entered it");
  }
  return here.mode;
}

bool is_on() noexcept { return c10::impl::tls_is_dispatch_key_included(key); }

void refuse(const std::string& message, const std::string& remedy) {
  if (throw_hook != nullptr) throw_hook(message, remedy);
  throw not_reproducible(message, remedy);
}

void set_thrower(thrower how) noexcept { throw_hook = how; }

bool made_inside(std::uint64_t thread, std::uint64_t sequence) noexcept {
  return nodes().contains(thread, sequence);
}

}  // namespace dispatch

deterministic_guard::deterministic_guard(numeric::arithmetic mode) {
  using dispatch::here;
  if (here.depth > 0) {
    if (here.mode != mode) {
      throw exception({errc::usage,
                       std::string("this thread computes in ") + to_string(here.mode) +
                           ", not in " + to_string(mode),
                       "leave the outer block first"});
    }
    ++here.depth;
    return;
  }
  dispatch::ensure_registered();
  static const int forks = pthread_atfork(nullptr, nullptr, &dispatch::leave_after_fork);
  static_cast<void>(forks);
  dispatch::require_ieee();
  here = {1, mode};
  dispatch::nodes().begin();
  c10::impl::tls_set_dispatch_key_included(dispatch::key, true);
}

deterministic_guard::~deterministic_guard() {
  using dispatch::here;
  if (here.depth == 0 || --here.depth > 0) return;  // 0: this is a forked process
  c10::impl::tls_set_dispatch_key_included(dispatch::key, false);
  dispatch::nodes().end();
}

stock_guard::stock_guard() noexcept
    : was_on_(c10::impl::tls_is_dispatch_key_included(dispatch::key)) {
  if (!was_on_) return;
  c10::impl::tls_set_dispatch_key_included(dispatch::key, false);
  dispatch::nodes().end();
}

stock_guard::~stock_guard() {
  if (!was_on_) return;
  dispatch::nodes().begin();
  c10::impl::tls_set_dispatch_key_included(dispatch::key, true);
}

}  // namespace potl::libtorch

// SPDX-License-Identifier: Apache-2.0
// Who runs the independent parts of a computation. The core never starts threads of its own beside
// another library's: two pools spin against each other. Beside torch the executor is torch's pool.
//
// No result depends on the executor: how a computation is cut into tasks never changes its bits.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace potl::numeric {

/// A reference to a callable `void(std::size_t task)`; valid as long as the callable is.
class task_body {
 public:
  template <class Callable>  // NOLINTNEXTLINE(*-explicit-*,*-forwarding-*)
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, task_body>) task_body(Callable&& callable)
  noexcept
      : object_(const_cast<void*>(static_cast<const void*>(&callable))),
        call_([](void* object, std::size_t task) {
          (*static_cast<std::remove_reference_t<Callable>*>(object))(task);
        }) {}
  void operator()(std::size_t task) const { call_(object_, task); }

 private:
  void* object_;
  void (*call_)(void*, std::size_t);
};

class executor {
 public:
  executor() = default;
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;
  virtual ~executor() = default;

  /// How many tasks can run at the same time; at least 1.
  virtual std::size_t concurrency() const noexcept = 0;

  /// Calls body(0) ... body(tasks - 1), each once, in any order and on any threads; returns when
  /// all are done. Rethrows one of the exceptions that a body threw. May be called from several
  /// threads, and from a body: then it runs in the calling thread.
  virtual void run(std::size_t tasks, task_body body) const = 0;
};

/// Runs everything in the calling thread.
const executor& inline_executor() noexcept;

/// A pool of `threads` threads, the calling one included (1 is the calling thread alone). Workers
/// inherit the floating-point environment of the thread that makes the pool.
/// Throws potl::exception (usage) when `threads` is 0.
std::unique_ptr<executor> make_thread_pool(std::size_t threads);

}  // namespace potl::numeric

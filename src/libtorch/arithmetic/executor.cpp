// SPDX-License-Identifier: Apache-2.0
// torch's thread pool as the kernels' executor.
//
// The pool is reached through TensorIterator, whose body is compiled in LibTorch: at::parallel_for
// is a template around OpenMP pragmas, and compiling it here would bring OpenMP, perhaps a second
// copy of its runtime, and with it a second pool.
#include <potl/numeric/detail/fp_environment.hpp>
#include <potl/numeric/detail/task_shares.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include "environment.hpp"
#include "mode.hpp"

namespace potl::libtorch::dispatch {
namespace {

/// A loop over one element per thread: built once, because that takes as long as waking the pool.
struct team {
  std::size_t threads = 0;
  at::Tensor elements;
  at::TensorIterator iterator;
};
team& team_of(std::size_t threads) {
  static thread_local team kept;
  if (kept.threads == threads) return kept;
  kept.threads = 0;
  kept.elements = at::empty({static_cast<std::int64_t>(threads)}, at::TensorOptions(at::kByte));
  // Without operands, the sizes of the iterator are those of an output that may not be resized.
  kept.iterator = at::TensorIteratorConfig()
                      .add_output(kept.elements)
                      .check_all_same_dtype(false)
                      .resize_outputs(false)
                      .build();
  kept.threads = threads;
  return kept;
}

/// Calls body(i) for each i below `threads`, each in a thread of the pool, the calling one
/// included: OpenMP gives the same i to the same thread every time.
template <class Body>
void in_threads(std::size_t threads, const Body& body) {
  team& all = team_of(threads);
  const char* const first = static_cast<const char*>(all.elements.const_data_ptr());
  const auto work = [&](char** data, const std::int64_t*, std::int64_t size0, std::int64_t size1) {
    for (std::int64_t i = 0; i < size0 * size1; ++i) {
      body(static_cast<std::size_t>(data[0] - first + i));
    }
  };
  all.iterator.for_each(at::TensorIterator::loop2d_t(work), /*grain_size=*/1);
}

/// What is wrong in this thread; empty: nothing.
std::string cause_here() {
  const std::vector<fp_check> checks = fp_environment();
  // Exceptions that are not masked keep others from being tested.
  if (!checks.back().ok) return checks.back().cause;
  for (const fp_check& check : checks) {
    if (!check.ok) return check.cause;
  }
  return "";
}

[[noreturn]] void refuse_environment(const std::string& where, const std::string& cause) {
  refuse("the floating-point environment" + where + " is not that of IEEE 754: " + cause,
         "import potl and use torch once before the library that changes it, or do without it");
}

/// What is wrong in the pool's threads, each of which looks for itself.
class worker_causes {
 public:
  void look() {
    // A worker has the environment that its maker had when the pool grew, unless it runs code that
    // changes it.
    static thread_local std::uint64_t sound = ~std::uint64_t{0};
    const std::uint64_t now = fp_control();
    if (now == sound) return;
    std::string found = cause_here();
    if (found.empty()) {
      sound = now;
      return;
    }
    const std::lock_guard lock(mutex_);
    cause_ = std::move(found);
  }

  void require_none() const {
    if (!cause_.empty()) refuse_environment(" in a worker of torch's thread pool", cause_);
  }

 private:
  std::mutex mutex_;
  std::string cause_;
};

/// Tells whether the workers that were looked at are still there: OpenMP ends workers that a
/// smaller team does not need, and makes new ones for a larger team.
class team_state {
 public:
  team_state() = default;
  explicit team_state(std::size_t threads)
      : threads_(threads), gone_(std::make_shared<std::atomic<bool>>(false)) {}

  bool is_whole(std::size_t threads) const { return threads == threads_ && !*gone_; }

  /// In a worker: from now on its end is noticed.
  void join() const {
    static thread_local membership mine;
    mine.leave();
    mine.gone = gone_;
  }

 private:
  struct membership {
    ~membership() { leave(); }
    void leave() const {
      if (gone) *gone = true;
    }
    std::shared_ptr<std::atomic<bool>> gone;
  };

  std::size_t threads_ = 0;
  std::shared_ptr<std::atomic<bool>> gone_;
};

class torch_pool final : public numeric::executor {
 public:
  std::size_t concurrency() const noexcept override {
    return at::in_parallel_region() ? 1 : static_cast<std::size_t>(at::get_num_threads());
  }

  void run(std::size_t tasks, numeric::task_body body) const override {
    const std::size_t threads = std::min(tasks, concurrency());
    if (threads <= 1) {
      for (std::size_t task = 0; task < tasks; ++task) body(task);
      return;
    }
    numeric::task_shares shares(tasks, threads);
    worker_causes causes;
    in_threads(threads, [&](std::size_t thread) {
      causes.look();
      shares.work(thread, body);
    });
    causes.require_none();
  }
};

}  // namespace

const numeric::executor& executor() noexcept {
  static const torch_pool pool;
  return pool;
}

void require_ieee() {
  if (const std::string cause = cause_here(); !cause.empty()) refuse_environment("", cause);
  // Waking the pool takes longer than the step of a small net, on a busy machine ten times as long.
  // So that is done when there are other workers, and now and then; kernels that use them look for
  // themselves.
  constexpr std::size_t interval = 1024;
  static thread_local std::size_t blocks = 0;
  static thread_local team_state looked_at;
  const std::size_t threads = executor().concurrency();
  if (threads == 1) return;
  if (looked_at.is_whole(threads) && ++blocks % interval != 0) return;
  looked_at = team_state();
  worker_causes causes;
  team_state now(threads);
  in_threads(threads, [&](std::size_t thread) {
    causes.look();
    if (thread != 0) now.join();
  });
  causes.require_none();
  looked_at = now;
}

}  // namespace potl::libtorch::dispatch

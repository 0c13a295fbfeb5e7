// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/task_shares.hpp>

namespace potl::numeric {
namespace {

class in_place final : public executor {
 public:
  std::size_t concurrency() const noexcept override { return 1; }
  void run(std::size_t tasks, task_body body) const override {
    for (std::size_t task = 0; task < tasks; ++task) body(task);
  }
};

// One call of run().
struct round {
  round(std::size_t count, std::size_t threads, task_body what)
      : shares(count, threads), body(what) {}

  void work(std::size_t thread) noexcept {
    shares.work(thread, [&](std::size_t task) {
      try {
        body(task);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  }

  task_shares shares;
  task_body body;
  std::atomic<std::size_t> workers_inside{0};  // changed with the pool's mutex
  std::mutex failure_mutex;
  std::exception_ptr failure;
};

/// Waits a moment without the kernel: waking a thread that sleeps takes as long as 10^5 elements of
/// a short function. Bounded, so that a pool without work costs nothing. Returns condition().
template <class Condition>
bool spin_until(const Condition& condition) {
  constexpr int tries = 2000;  // 10 to 100 microseconds
  for (int i = 0; i < tries; ++i) {
    if (condition()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  return condition();
}

thread_local bool inside_body = false;

class pool final : public executor {
 public:
  explicit pool(std::size_t threads) {
    // With more threads than processors, who spins keeps another from working.
    spins_ = threads <= std::thread::hardware_concurrency();
    for (std::size_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
  }
  ~pool() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;

  std::size_t concurrency() const noexcept override { return workers_.size() + 1; }

  void run(std::size_t tasks, task_body body) const override {
    if (inside_body || workers_.empty() || tasks < 2) {
      inline_executor().run(tasks, body);
      return;
    }
    const std::lock_guard one_at_a_time(run_mutex_);
    round now(tasks, concurrency(), body);
    {
      const std::lock_guard lock(mutex_);
      current_ = &now;
      ++generation_;
    }
    wake_.notify_all();
    inside_body = true;
    now.work(0);
    inside_body = false;
    std::unique_lock lock(mutex_);
    current_ = nullptr;  // who comes now comes too late
    if (now.workers_inside != 0 && spins_) {
      lock.unlock();
      spin_until([&] { return now.workers_inside == 0; });
      lock.lock();
    }
    done_.wait(lock, [&] { return now.workers_inside == 0; });
    if (now.failure) std::rethrow_exception(now.failure);
  }

 private:
  void serve(std::size_t thread) {
    inside_body = true;
    std::size_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (spins_) {
        lock.unlock();
        spin_until([&] { return stopping_ || generation_ != seen; });
        lock.lock();
        if (!stopping_ && current_ == nullptr && generation_ != seen) {
          seen = generation_;  // came too late
          continue;
        }
      }
      wake_.wait(lock, [&] { return stopping_ || (current_ != nullptr && generation_ != seen); });
      if (stopping_) return;
      seen = generation_;
      round& now = *current_;
      ++now.workers_inside;
      lock.unlock();
      now.work(thread);
      lock.lock();
      if (--now.workers_inside == 0) done_.notify_one();
    }
  }

  mutable std::mutex run_mutex_;
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_, done_;
  mutable round* current_ = nullptr;
  mutable std::atomic<std::size_t> generation_{0};  // changed with the mutex, like stopping_
  std::atomic<bool> stopping_{false};
  bool spins_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace

const executor& inline_executor() noexcept {
  static const in_place only;
  return only;
}

std::unique_ptr<executor> make_thread_pool(std::size_t threads) {
  if (threads == 0) throw exception({errc::usage, "a pool of 0 threads", "ask for at least 1"});
  return std::make_unique<pool>(threads);
}

}  // namespace potl::numeric

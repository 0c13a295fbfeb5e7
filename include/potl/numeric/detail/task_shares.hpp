// SPDX-License-Identifier: Apache-2.0
// Who runs which task of an executor's round: each thread begins with a share of its own, always
// the same one, and helps others when it is done. A call that follows on the same data then finds
// it in the caches of the same processors.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace potl::numeric {

class task_shares {
 public:
  /// Throws std::bad_alloc.
  task_shares(std::size_t tasks, std::size_t threads) : shares_(threads) {
    for (std::size_t i = 0; i < threads; ++i) {
      shares_[i].next = tasks * i / threads;
      shares_[i].end = tasks * (i + 1) / threads;
    }
  }

  /// body(task) until no task is left; `thread` is below the number of threads. Each task runs
  /// once, whoever calls this and how often.
  template <class Body>
  void work(std::size_t thread, const Body& body) {
    for (std::size_t k = 0; k < shares_.size(); ++k) {
      share& from = shares_[(thread + k) % shares_.size()];
      // Looked at first: the counter goes past the end by one for each thread that comes late.
      while (from.next.load(std::memory_order_relaxed) < from.end) {
        const std::size_t task = from.next.fetch_add(1, std::memory_order_relaxed);
        if (task < from.end) body(task);
      }
    }
  }

 private:
  struct alignas(64) share {  // a cache line each
    std::atomic<std::size_t> next{0};
    std::size_t end = 0;
  };
  std::vector<share> shares_;
};

}  // namespace potl::numeric

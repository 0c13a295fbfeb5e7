// SPDX-License-Identifier: Apache-2.0
// The content roots of a state's tensors, computed by whoever asks for them: threads that ask at
// the same time share the chunks, so that a trainer who would have to wait for the background
// thread does part of its work instead.
//
// Cost: SHA-256 over the bytes once, however many ask; until it is done, 32 bytes for every 16 KiB.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <vector>

#include <potl/core/digest.hpp>

namespace potl::transcript {

class shared_roots {
 public:
  explicit shared_roots(std::vector<bytes_view> contents);

  /// content_root() of each. Takes part in the work, with `threads` threads (this one included)
  /// where that is worth starting them, and returns when all is done. Throws what hashing threw,
  /// in whichever thread.
  const std::vector<digest>& compute(unsigned threads);
  /// Chunks hashed so far, by all threads; for tests.
  std::size_t hashed() const { return done_; }

 private:
  enum phase : int { open, finished, failed };

  void work() noexcept;
  void hash(std::size_t first, std::size_t last);
  void collect();
  void end(phase how);

  std::vector<bytes_view> contents_;
  std::vector<std::size_t> starts_;  // chunks before each, and in all
  std::vector<digest> leaves_;
  std::vector<digest> roots_;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::size_t> done_{0};
  std::atomic<int> phase_{open};
  std::mutex failing_;
  std::exception_ptr why_;
};

}  // namespace potl::transcript

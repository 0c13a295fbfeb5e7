// SPDX-License-Identifier: Apache-2.0
// Blocks of work for the threads of an executor, and memory for each thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric::conv {

/// Floats that are not initialised, at a multiple of 64 bytes.
class buffer {
 public:
  buffer() = default;
  explicit buffer(std::int64_t floats)
      : data_(static_cast<float*>(::operator new (static_cast<std::size_t>(floats) * sizeof(float),
                                                  std::align_val_t{64}))) {}
  float* get() const noexcept { return data_.get(); }

 private:
  struct release {
    void operator()(float* data) const noexcept { ::operator delete (data, std::align_val_t{64}); }
  };
  std::unique_ptr<float, release> data_;
};

/// Calls body(worker, block) for each block once; a worker is in one thread, and takes the next
/// block when it has done one, so that a thread that comes late or is interrupted costs little.
template <class Body>
void for_each_block(const executor& threads, std::int64_t workers, std::int64_t blocks, Body body) {
  std::atomic<std::int64_t> next{0};
  threads.run(static_cast<std::size_t>(std::min(workers, blocks)), [&](std::size_t worker) {
    for (std::int64_t block = next++; block < blocks; block = next++)
      body(static_cast<std::int64_t>(worker), block);
  });
}

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

}  // namespace potl::numeric::conv

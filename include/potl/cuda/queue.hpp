// SPDX-License-Identifier: Apache-2.0
// Where the functions of this folder queue their work, and whose memory that work uses.
#pragma once

#include <cstddef>

namespace potl::cuda {

/// Memory of a device for the work of one stream: what is queued there after `give_back` may have
/// it again. Used by the thread that calls a function of this folder, until the function returns.
class stream_allocator {
 public:
  stream_allocator() = default;
  stream_allocator(const stream_allocator&) = delete;
  stream_allocator& operator=(const stream_allocator&) = delete;
  virtual ~stream_allocator() = default;

  /// At least so many bytes, more than 0, aligned to 256. Throws where there are not so many.
  virtual void* take(std::size_t bytes) const = 0;
  virtual void give_back(void* memory) const noexcept = 0;
};

/// A stream of the current device. Without an allocator, memory comes from the device's default
/// pool (cudaMallocAsync), whose release threshold is the program's to set: at 0, the driver's
/// default, each wait for the device gives all of it back to the system.
struct queue {
  // NOLINTNEXTLINE(google-explicit-constructor): a cudaStream_t is a queue.
  queue(void* its_stream = nullptr, const stream_allocator* its_memory = nullptr) noexcept
      : stream(its_stream), memory(its_memory) {}

  void* stream;                    ///< a cudaStream_t; null: the default stream
  const stream_allocator* memory;  ///< null: the pool
};

}  // namespace potl::cuda

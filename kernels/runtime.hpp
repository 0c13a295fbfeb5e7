// SPDX-License-Identifier: Apache-2.0
// What launchers share. Private.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <new>
#include <string>

#include <potl/core/error.hpp>
#include <potl/cuda/queue.hpp>

namespace potl::cuda {

/// Throws potl::exception (io) for an error of the runtime; std::bad_alloc where the device has no
/// memory left. Either way the error is taken from the runtime, and the context stays usable.
inline void require(cudaError_t status) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  if (status == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw exception({errc::io, std::string("CUDA: ") + cudaGetErrorString(status), ""});
}

/// So many blocks as a grid.
inline unsigned grid_of(std::uint64_t blocks) {
  if (blocks > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
    throw exception({errc::usage, "this is too large for one launch", "cut it into parts"});
  }
  return static_cast<unsigned>(blocks);
}

/// Memory of the device that belongs to a stream: what is queued after its end may reuse it.
class stream_memory {
 public:
  stream_memory(std::size_t bytes, const queue& on) : on_(on) {
    if (on_.memory != nullptr) {
      at_ = on_.memory->take(bytes);
    } else {
      require(cudaMallocAsync(&at_, bytes, static_cast<cudaStream_t>(on_.stream)));
    }
  }
  ~stream_memory() {
    if (on_.memory != nullptr) {
      on_.memory->give_back(at_);
    } else {
      cudaFreeAsync(at_, static_cast<cudaStream_t>(on_.stream));
    }
  }
  stream_memory(const stream_memory&) = delete;
  stream_memory& operator=(const stream_memory&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(at_);
  }

 private:
  queue on_;
  void* at_ = nullptr;
};

}  // namespace potl::cuda

// SPDX-License-Identifier: Apache-2.0
// What the functions of layers.hpp compute on: here a stream of the current device, in the tests
// simulated blocks (tests/unit/simulated_device.hpp; tests/simulated has them behind these names,
// so that a launcher runs on a CPU). Private.
#pragma once

#if defined(POTL_SIMULATED_DEVICE)
#include "simulated_stream.hpp"
#else

#include <algorithm>

#include "block.hpp"
#include "runtime.hpp"

namespace potl::cuda {

constexpr unsigned item_threads = 256;

template <class Item>
__global__ void __launch_bounds__(item_threads) run_items(const Item item, std::uint64_t count) {
  device_block<item_threads> here;
  for_items(here, gridDim.x, count, item);
}

/// So many blocks of a body share a multiprocessor, which bounds the registers of a thread.
template <class Body>
constexpr unsigned resident_blocks() {
  if constexpr (requires { Body::resident; }) return Body::resident;
  return 1;
}

/// Threads of a block, those that only bring included (device_block::pipelined()).
template <class Body>
constexpr unsigned all_threads() {
  if constexpr (requires { Body::bringers; }) return Body::threads + Body::bringers;
  return Body::threads;
}

/// A body that needs memory of its block: Body::memory<Block>, Body::threads.
template <class Body>
__global__ void __launch_bounds__(all_threads<Body>(), resident_blocks<Body>())
    run_blocks(const Body body) {
  using block = device_block<Body::threads>;
  __shared__ typename Body::template memory<block> memory;
  block here;
  body(here, memory);
}

/// The same with more memory than a block has by itself.
template <class Body>
__global__ void __launch_bounds__(all_threads<Body>(), resident_blocks<Body>())
    run_large_blocks(const Body body) {
  using block = device_block<Body::threads>;
  extern __shared__ __align__(128) unsigned char raw_memory[];
  block here;
  body(here, *reinterpret_cast<typename Body::template memory<block>*>(raw_memory));
}

class stream_device {
 public:
  explicit stream_device(const queue& on)
      : on_(on), stream_(static_cast<cudaStream_t>(on.stream)) {}

  /// Whether bodies that multiply_rows() run here: on Hopper, by code that is for it alone.
  bool multiplies_rows() const {
    int major = 0;
#if defined(POTL_CUDA_HOPPER)
    int device = 0;
    require(cudaGetDevice(&device));
    require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
#endif
    return major == 9;
  }

  std::int64_t multiprocessors() const {
    int device = 0, count = 0;
    require(cudaGetDevice(&device));
    require(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
  }

  /// item(i) for each i below `count`.
  template <class Item>
  void each(std::uint64_t count, const Item& item) const {
    if (count == 0) return;
    const std::uint64_t blocks = (count + item_threads - 1) / item_threads;
    const auto grid = static_cast<unsigned>(std::min<std::uint64_t>(blocks, 65536));
    run_items<<<grid, item_threads, 0, stream_>>>(item, count);
    require(cudaGetLastError());
  }

  /// body(block, memory) for each of `blocks`.
  template <class Body>
  void run(std::uint64_t blocks, const Body& body) const {
    if (blocks == 0) return;
    constexpr std::size_t bytes =
        sizeof(typename Body::template memory<device_block<Body::threads>>);
    if constexpr (bytes <= 48 * 1024) {
      run_blocks<<<grid_of(blocks), all_threads<Body>(), 0, stream_>>>(body);
    } else {
      require(cudaFuncSetAttribute(run_large_blocks<Body>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
      run_large_blocks<<<grid_of(blocks), all_threads<Body>(), bytes, stream_>>>(body);
    }
    require(cudaGetLastError());
  }

  /// Copies numbers of the host, which may change afterwards.
  template <class T>
  void send(const T* from, std::uint64_t count, T* to) const {
    require(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyHostToDevice, stream_));
  }

  /// Copies numbers to the host, and waits for all that is queued.
  template <class T>
  void receive(const T* from, std::uint64_t count, T* to) const {
    require(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToHost, stream_));
    require(cudaStreamSynchronize(stream_));
  }

  /// Memory for this many numbers until what is queued meanwhile has run.
  template <class T>
  class numbers {
   public:
    numbers(const stream_device& device, std::uint64_t count)
        : memory_(std::max<std::uint64_t>(count, 1) * sizeof(T), device.on_) {}
    T* data() const { return memory_.template as<T>(); }

   private:
    stream_memory memory_;
  };

 private:
  queue on_;
  cudaStream_t stream_;
};

}  // namespace potl::cuda

#endif

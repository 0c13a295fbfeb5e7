// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/digest.hpp>

#include <algorithm>
#include <vector>

#include <potl/crypto/merkle.hpp>

#include "digest.hpp"
#include "runtime.hpp"

namespace potl::cuda {
namespace {

// Few: there are hardly more chunks than a device has places for warps.
constexpr unsigned hash_threads = 64;
using hash_block = device_block<hash_threads>;

__global__ void __launch_bounds__(hash_threads)
    leaves_of(const hashed_tensor* tensors, std::uint64_t count, std::uint64_t chunks,
              hash_words* leaves) {
  hash_block here;
  hash_leaves(here, tensors, count, chunks, leaves);
}

__global__ void __launch_bounds__(hash_threads)
    nodes_of(const hashed_tensor* tensors, std::uint64_t count, std::uint64_t chunks,
             unsigned level, const hash_words* below, hash_words* above) {
  hash_block here;
  hash_nodes(here, tensors, count, chunks, level, below, above);
}

__global__ void __launch_bounds__(hash_threads)
    roots_of(const hashed_tensor* tensors, std::uint64_t count, const hash_words* nodes,
             hash_words empty, digest* roots) {
  hash_block here;
  write_roots(here, tensors, count, nodes, empty, roots);
}

unsigned blocks_for(std::uint64_t work) {
  return grid_of((work + hash_threads - 1) / hash_threads);
}

hash_words words_of(const digest& from) {
  hash_words out{};
  for (std::size_t i = 0; i < digest::size; ++i) out.at[i / 4] = out.at[i / 4] << 8 | from.bytes[i];
  return out;
}

}  // namespace

bool has_device() noexcept {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

void content_roots(std::span<const device_bytes> tensors, digest* roots, void* stream) {
  if (tensors.empty()) return;
  const cudaStream_t queue = as_stream(stream);
  std::vector<hashed_tensor> table;
  std::uint64_t chunks = 0, most = 0;
  for (const device_bytes& one : tensors) {
    table.push_back({static_cast<const std::uint8_t*>(one.data), one.size, chunks});
    chunks += content_chunks(one.size);
    most = std::max(most, content_chunks(one.size));
  }
  const stream_memory there(table.size() * sizeof(hashed_tensor), queue);
  require(cudaMemcpyAsync(there.as<void>(), table.data(), table.size() * sizeof(hashed_tensor),
                          cudaMemcpyHostToDevice, queue));
  const auto* list = there.as<const hashed_tensor>();
  const stream_memory space(2 * std::max<std::uint64_t>(chunks, 1) * sizeof(hash_words), queue);
  auto* now = space.as<hash_words>();
  hash_words* next = now + chunks;
  if (chunks != 0) {
    leaves_of<<<blocks_for(chunks), hash_threads, 0, queue>>>(list, table.size(), chunks, now);
    require(cudaGetLastError());
  }
  for (unsigned level = 0; most > 1 && (most - 1) >> level != 0; ++level, std::swap(now, next)) {
    nodes_of<<<blocks_for(chunks), hash_threads, 0, queue>>>(list, table.size(), chunks, level, now,
                                                             next);
    require(cudaGetLastError());
  }
  roots_of<<<blocks_for(table.size()), hash_threads, 0, queue>>>(list, table.size(), now,
                                                                 words_of(empty_root()), roots);
  require(cudaGetLastError());
}

}  // namespace potl::cuda

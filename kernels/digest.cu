// SPDX-License-Identifier: Apache-2.0
#include <potl/cuda/digest.hpp>

#include <algorithm>
#include <vector>

#include <potl/crypto/merkle.hpp>

#include "digest.hpp"
#include "stream_device.hpp"

namespace potl::cuda {
namespace {

std::uint64_t blocks_for(std::uint64_t work) {
  return (work + hashed_tensors::threads - 1) / hashed_tensors::threads;
}

hash_words words_of(const digest& from) {
  hash_words out{};
  for (std::size_t i = 0; i < digest::size; ++i) out.at[i / 4] = out.at[i / 4] << 8 | from.bytes[i];
  return out;
}

}  // namespace

#if !defined(POTL_SIMULATED_DEVICE)
bool has_device() noexcept {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}
#endif

void content_roots(std::span<const device_bytes> tensors, digest* roots, queue stream) {
  if (tensors.empty()) return;
  const stream_device device(stream);
  std::vector<hashed_tensor> table;
  std::uint64_t chunks = 0, most = 0;
  for (const device_bytes& one : tensors) {
    table.push_back({static_cast<const std::uint8_t*>(one.data), one.size, chunks});
    chunks += content_chunks(one.size);
    most = std::max(most, content_chunks(one.size));
  }
  stream_device::numbers<hashed_tensor> there(device, table.size());
  device.send(table.data(), table.size(), there.data());
  stream_device::numbers<hash_words> space(device, 2 * chunks);
  hash_words* now = space.data();
  hash_words* next = now + chunks;
  const hashed_tensors all{there.data(), table.size(), chunks};
  device.run(blocks_for(chunks), leaf_hashes{all, now});
  for (unsigned level = 0; most > 1 && (most - 1) >> level != 0; ++level, std::swap(now, next)) {
    device.run(blocks_for(chunks), node_hashes{all, level, now, next});
  }
  device.run(blocks_for(table.size()), root_digests{all, now, words_of(empty_root()), roots});
}

}  // namespace potl::cuda

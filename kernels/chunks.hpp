// SPDX-License-Identifier: Apache-2.0
// Products whose chunks are computed by blocks of their own, on any device (layers.hpp). Private.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gemm.hpp"

namespace potl::cuda {

/// Elements that the sums of chunks take at a time: 256 MiB.
constexpr std::int64_t most_sums = std::int64_t{1} << 26;

/// Fewer blocks than this leave multiprocessors of a large device idle.
constexpr std::int64_t enough_blocks = 200;

inline std::int64_t chunks_of(std::int64_t depth) {
  return std::max<std::int64_t>((depth + numeric::ord_chunk - 1) / numeric::ord_chunk, 1);
}

/// run(sums, chunks) queues the sums of so many chunks from sums.first on; they are then joined
/// into what `targets` has.
template <class Device, class Targets, class Run>
void in_chunks(const Device& device, std::int64_t products, std::int64_t rows, std::int64_t columns,
               std::int64_t depth, const Targets& targets, const Run& run) {
  const std::int64_t size = products * rows * columns, chunks = chunks_of(depth);
  const std::int64_t at_once = std::clamp<std::int64_t>(most_sums / size, 1, chunks);
  typename Device::template numbers<float> memory(device,
                                                  static_cast<std::uint64_t>(size * at_once));
  for (std::int64_t first = 0; first < chunks; first += at_once) {
    const chunk_sums sums{memory.data(), first, products, rows, columns};
    const std::int64_t count = std::min(at_once, chunks - first);
    run(sums, count);
    device.each(static_cast<std::uint64_t>(size),
                joined_chunks<Targets>{sums, targets, count, first + count == chunks});
  }
}

}  // namespace potl::cuda

// SPDX-License-Identifier: Apache-2.0
// Weight gradients in ord32 whose chunks of 512 positions are summed in any order and added in
// theirs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tile.hpp"
#include "workers.hpp"

namespace potl::numeric::conv {

constexpr std::int64_t chunk_positions = 512;

struct chunk_work {
  std::int64_t positions;
  std::int64_t blocks;      ///< of results, that are summed apart
  std::int64_t block_sums;  ///< results of a block
  std::int64_t memory;      ///< floats that one_chunk() works in
};

/// Calls one_chunk(block, begin, end, memory, sums) for each block and chunk of positions, and
/// finish(block, sums) for each block with the sums of all of its chunks.
template <class OneChunk, class Finish>
void sum_chunks(const chunk_work& work, const kernels& with, const executor& threads,
                OneChunk one_chunk, Finish finish) {
  constexpr std::int64_t most_sums = 128 * 1024;  // floats of chunk sums
  const auto workers = static_cast<std::int64_t>(threads.concurrency());
  const std::int64_t outputs = work.blocks * work.block_sums;  // of one chunk
  const std::int64_t chunks = divide_up(work.positions, chunk_positions);
  const std::int64_t together =
      std::clamp<std::int64_t>(most_sums / outputs - 1, std::min(workers, chunks), chunks);
  const std::int64_t each = divide_up(work.memory, 16) * 16;
  const buffer memory(workers * each), sums((together + 1) * outputs);
  for (std::int64_t done = 0; done < chunks; done += together) {
    const std::int64_t some = std::min(together, chunks - done);
    for_each_block(threads, workers, some * work.blocks,
                   [&](std::int64_t worker, std::int64_t task) {
                     const std::int64_t at = task % some, block = task / some;
                     const std::int64_t begin = (done + at) * chunk_positions;
                     one_chunk(block, begin, std::min(begin + chunk_positions, work.positions),
                               memory.get() + worker * each,
                               sums.get() + (at + 1) * outputs + block * work.block_sums);
                   });
    for_each_block(threads, workers, work.blocks, [&](std::int64_t, std::int64_t block) {
      float* const total = sums.get() + block * work.block_sums;
      for (std::int64_t at = 0; at < some; ++at) {
        const float* const part = total + (at + 1) * outputs;
        if (done + at == 0)
          std::copy_n(part, work.block_sums, total);
        else
          with.add(part, work.block_sums, total);
      }
      if (done + some == chunks) finish(block, total);
    });
  }
}

}  // namespace potl::numeric::conv

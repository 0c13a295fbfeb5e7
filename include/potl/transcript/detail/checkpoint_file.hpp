// SPDX-License-Identifier: Apache-2.0
// A checkpoint file that another party may have written, read once: memory for all of it is taken
// only where its head fits its size, and that head is not parsed again.
#pragma once

#include <cstdint>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/file.hpp>
#include <potl/core/result.hpp>
#include <potl/encoding/detail/safetensors.hpp>
#include <potl/transcript/state.hpp>

namespace potl::transcript {

/// Bytes of the longest head: the length of the header, and the header.
inline constexpr std::uint64_t max_checkpoint_head = 8 + (std::uint64_t{32} << 20);

/// A file in memory, and what its head says.
struct checkpoint_file {
  std::vector<std::uint8_t> bytes;
  safetensors_head head;
};

/// mismatch: by its head no file of this size is a checkpoint; limit and io as
/// file_pieces::read_all.
result<checkpoint_file> read_checkpoint(const file_pieces& file, std::uint64_t max_bytes);

/// As parse_checkpoint of its bytes alone.
result<state> parse_checkpoint(checkpoint_file file, const digest* expected,
                               const base_source& base = nullptr);

}  // namespace potl::transcript

// SPDX-License-Identifier: Apache-2.0
// Copying a training state while the trainer stands still: the tensors go into one block of memory,
// and blocks are used again, so that steady recording neither allocates nor faults pages for them.
// Cost: one memcpy of the state, plus well under a microsecond per node of the tree. Tensors that
// are not trained are copied once (kept_tensor.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <potl/core/result.hpp>
#include <potl/transcript/state.hpp>

namespace potl::transcript {

/// Blocks of memory that come back when the last state that uses them is gone. Safe to use from
/// several threads; the blocks that are out may outlive it.
class snapshot_memory {
 public:
  /// Keeps at most `spare_blocks` unused ones.
  explicit snapshot_memory(std::size_t spare_blocks = 2);

  /// At least `bytes` bytes, aligned to 64. Throws std::bad_alloc.
  std::shared_ptr<std::uint8_t> take(std::size_t bytes);
  /// Bytes in all blocks, in use or spare; for tests and statistics.
  std::size_t total_bytes() const;

 private:
  struct body;
  std::shared_ptr<body> body_;
};

/// An immutable copy of `tree`, whose tensors' spans point into the trainer's memory. Maps may be
/// in any order (a key twice is malformed). Tensors with the same non-empty address, dtype, format
/// and dims become aliases of the first. A tensor with `kept` is looked at instead, all of it if
/// `whole`; one that was written in part is refused, because earlier states may be wrong already.
result<state> capture(state_value tree, snapshot_memory& memory, bool whole = true);

/// What a capture of `tree` would be, over the memory in which its tensors lie: nothing is copied.
/// Nobody may write there any more. `owner` keeps it.
result<state> adopt(state_value tree, std::shared_ptr<const void> owner);

/// Content roots of memory that the CPU does not read, in the order given.
using root_source = std::function<std::vector<digest>(std::span<const bytes_view>)>;

/// The digest that a capture of `tree` would have. `roots_of` is asked once for the tensors that
/// are elsewhere; the others are hashed here. Nothing is copied.
result<digest> digest_of(state_value tree, const root_source& roots_of);

/// Whether a capture of `tree` would have the digest of `before`. Nothing is copied or hashed.
result<bool> would_equal(state_value tree, const state& before);

}  // namespace potl::transcript

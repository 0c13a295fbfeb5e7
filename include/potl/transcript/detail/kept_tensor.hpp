// SPDX-License-Identifier: Apache-2.0
// A tensor that the training does not write, copied and hashed once instead of at every step.
//
// That it is not written is the trainer's guess, and what guards the trainer from a wrong one is
// here: every look compares a part of the tensor with the copy, another part each time, and the
// whole where a state is stored. A verifier trusts none of it: it compares digests of what it
// replays, which are computed from all bytes.
//
// Cost of a look: two reads of 1/64 of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl::transcript {

class kept_tensor {
 public:
  /// What a look finds.
  enum class finding {
    same,     ///< nothing that was looked at differs from the copy
    changed,  ///< every part differs: it was written as a whole since the last look
    torn,     ///< some parts differ, perhaps since long
  };

  /// The first look copies. `whole` compares all bytes. What was changed or torn stays so. One
  /// thread at a time.
  finding look(bytes_view now, bool whole);
  /// The copy; no byte of it changes any more.
  bytes_view bytes() const { return {copy_.get(), size_}; }
  /// content_root() of the copy, computed by the first who asks. Any thread.
  const digest& root() const;

  static constexpr std::size_t parts = 64;

 private:
  finding compare(bytes_view now, bool whole) const;
  bool differs(bytes_view now, std::size_t part) const;

  std::unique_ptr<std::uint8_t[]> copy_;
  std::size_t size_ = 0;
  std::size_t looks_ = 0;
  finding last_ = finding::same;
  mutable std::once_flag hashed_;
  mutable digest root_;
};

}  // namespace potl::transcript

// SPDX-License-Identifier: Apache-2.0
// The bytes of a state tree, and of an operator's description, which may hold references. A tensor
// is represented by dtype, memory format, dims and content root.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/transcript/state.hpp>

namespace potl::transcript {

inline constexpr std::size_t max_rank = 32;

/// `roots` holds the content roots of the tensors in encoding order. Maps are written as they are:
/// their keys must be sorted.
std::vector<std::uint8_t> encode_tree(const state_value& root, const std::vector<digest>& roots);

struct decoded_tree {
  state_value root;           ///< tensors without bytes and path
  std::vector<digest> roots;  ///< in encoding order
};
/// Strict: malformed or limit; what it accepts is canonical once state_index has walked it.
result<decoded_tree> decode_tree(bytes_view bytes);

/// SHA-256("potl.state.v1" 0x00 encoding)
digest digest_of_encoding(bytes_view encoding);

}  // namespace potl::transcript

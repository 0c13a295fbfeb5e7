// SPDX-License-Identifier: Apache-2.0
// leaf_hash() of several chunks at once.
//
// One SHA-256 waits for its own last round most of the time: two of them in turn take little longer
// than one (processors with SHA extensions), and sixteen fit into AVX-512's registers. Intel's
// ipsec-mb does that. It is used where it is installed when potl is compiled and when it runs;
// elsewhere OpenSSL hashes one chunk after another.
//
// Cost: 330 KiB of address space in each thread that hashes, until it ends.
#pragma once

#include <cstddef>
#include <span>

#include <potl/core/digest.hpp>

namespace potl::detail {

/// How many chunks are worth handing over at once.
inline constexpr std::size_t chunks_at_once = 8;

/// out[i] = leaf_hash(chunks[i]); no chunk is longer than content_chunk_bytes.
void chunk_hashes(std::span<const bytes_view> chunks, digest* out);

}  // namespace potl::detail

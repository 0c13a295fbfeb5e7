// SPDX-License-Identifier: Apache-2.0
// The content root: the RFC 6962 root (merkle.hpp) of raw bytes cut into chunks of 16 KiB.
//
// Claims: two byte strings of known length with the same root are equal (collision resistance of
// SHA-256), and a single chunk can be shown to be part of a root with a proof of log2(chunks)
// hashes. The root says nothing about type, shape or name: an encoding binds those beside it.
// The last chunk may be shorter; no bytes at all have the root of the empty tree (SHA-256 of
// nothing). Cost: on each thread the speed of SHA-256 less about 4 %, and where ipsec-mb is
// installed up to twice that speed, with SHA extensions, or more, without them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/crypto/merkle.hpp>

namespace potl {

inline constexpr std::size_t content_chunk_bytes = 16 * 1024;
/// How many chunks `length` bytes have.
constexpr std::uint64_t content_chunks(std::uint64_t length) noexcept {
  return length / content_chunk_bytes + (length % content_chunk_bytes != 0);
}

/// The content root of `bytes`.
digest content_root(bytes_view bytes);

/// Whether this machine hashes several chunks at once: ipsec-mb is there.
bool hashes_chunks_together();

/// Calls body(0) ... body(tasks - 1), each once and on any threads, and returns when all are done.
/// Rethrows one of the exceptions that a body threw.
using content_runner =
    std::function<void(std::size_t tasks, const std::function<void(std::size_t)>& body)>;

/// The same root, its chunks hashed in tasks of eight: for threads that are there already.
digest content_root(bytes_view bytes, const content_runner& run);

/// Writes the bytes from `offset` on into `out`. Called by several threads at once.
using content_source = std::function<void(std::uint64_t offset, std::span<std::uint8_t> out)>;

/// The same root of `length` bytes that lie nowhere in their order: each task asks for its part.
digest content_root(std::uint64_t length, const content_source& source, const content_runner& run);

/// All chunk hashes, for opening single chunks.
merkle_tree content_tree(bytes_view bytes);

/// The inclusion proof of chunk `index` of `bytes`; errc::usage when there is no such chunk.
result<merkle_proof> open_chunk(bytes_view bytes, std::uint64_t index);

/// ok: `chunk` is chunk number `index` of the `length` bytes with this content root.
/// malformed: no such chunk, or it cannot have this size; mismatch: it is not shown to be.
status verify_chunk(const digest& root, std::uint64_t length, std::uint64_t index, bytes_view chunk,
                    proof_view proof);

}  // namespace potl

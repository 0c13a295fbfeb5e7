// SPDX-License-Identifier: Apache-2.0
// The bodies of content roots (crypto/detail/tensor_digest.hpp). Private: needs block.hpp's macros.
//
// Exact because SHA-256 is whole numbers, and the tree is that of RFC 6962: pairing neighbours from
// the leaves upwards, where a lone last node goes up as it is, gives the same root as its recursive
// definition. A thread hashes a chunk, or a node.
#pragma once

#include <cstddef>
#include <cstdint>

#include <potl/crypto/detail/tensor_digest.hpp>

#include "block.hpp"

namespace potl::cuda {

/// A hash as eight numbers.
struct hash_words {
  std::uint32_t at[8];
};

/// One tensor of many. Its chunks are those of all tensors from `first` on.
struct hashed_tensor {
  const std::uint8_t* data;
  std::uint64_t bytes;
  std::uint64_t first;
};

/// The next 64 bytes of a message.
POTL_BODY void sha256_block(std::uint32_t (&state)[8], std::uint32_t (&w)[16]) {
  constexpr std::uint32_t k[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  const auto turned = [](std::uint32_t x, unsigned by) { return x >> by | x << (32 - by); };
  std::uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  std::uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  POTL_UNROLL
  for (unsigned i = 0; i < 64; ++i) {
    std::uint32_t& word = w[i % 16];
    if (i >= 16) {
      const std::uint32_t x = w[(i + 1) % 16], y = w[(i + 14) % 16];
      word += w[(i + 9) % 16] + (turned(x, 7) ^ turned(x, 18) ^ x >> 3) +
              (turned(y, 17) ^ turned(y, 19) ^ y >> 10);
    }
    const std::uint32_t one =
        h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + word;
    const std::uint32_t two =
        (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  state[0] += a, state[1] += b, state[2] += c, state[3] += d;
  state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

/// SHA-256 of a prefix byte and `bytes` bytes; word(i) gives bytes 4 i to 4 i + 3 as a number, and
/// after the last one 0x80 and zeros.
template <class Words>
POTL_BODY hash_words prefixed_hash(std::uint32_t prefix, std::uint64_t bytes, const Words& word) {
  std::uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const std::uint64_t blocks = (bytes + 9) / 64 + 1;  // of prefix, bytes, 0x80 and a length
  std::uint32_t carried = prefix;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    std::uint32_t w[16];
    POTL_UNROLL
    for (unsigned i = 0; i < 16; ++i) {
      const std::uint32_t next = word(block * 16 + i);
      w[i] = carried << 24 | next >> 8;
      carried = next & 0xffU;
    }
    if (block + 1 == blocks) {
      w[14] = static_cast<std::uint32_t>((bytes + 1) >> 29);
      w[15] = static_cast<std::uint32_t>((bytes + 1) << 3);
    }
    sha256_block(state, w);
  }
  hash_words out;
  for (unsigned i = 0; i < 8; ++i) out.at[i] = state[i];
  return out;
}

POTL_BODY hash_words leaf_of(const std::uint8_t* chunk, std::uint64_t bytes) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(chunk) % 4 == 0;
  return prefixed_hash(0x00, bytes, [=](std::uint64_t i) -> std::uint32_t {
    const std::uint64_t at = 4 * i;
    if (is_aligned && at + 4 <= bytes) {
      return swapped(*reinterpret_cast<const std::uint32_t*>(chunk + at));
    }
    std::uint32_t out = 0;
    for (std::uint64_t j = at; j < at + 4; ++j) {
      out = out << 8 | (j < bytes ? chunk[j] : j == bytes ? 0x80U : 0U);
    }
    return out;
  });
}

POTL_BODY hash_words node_of(const hash_words& left, const hash_words& right) {
  return prefixed_hash(0x01, 64, [&](std::uint64_t i) -> std::uint32_t {
    return i < 8 ? left.at[i] : i < 16 ? right.at[i - 8] : i == 16 ? 0x80000000U : 0U;
  });
}

/// All chunks of all tensors, and the bodies' block: few threads, because there are hardly more
/// chunks than a device has places for warps. They share nothing.
struct hashed_tensors {
  static constexpr unsigned threads = 64;
  template <class Block>
  struct memory {};

  const hashed_tensor* all;
  std::uint64_t count, chunks;
};

/// leaves[i] of every chunk i.
struct leaf_hashes : hashed_tensors {
  hash_words* leaves;

  template <class Block>
  POTL_BODY void operator()(Block& block, hashed_tensors::memory<Block>&) const {
    block.each([&](unsigned thread) {
      const std::uint64_t chunk = block.index() * Block::threads + thread;
      if (chunk >= chunks) return;
      const hashed_tensor tensor = all[owner_of(all, count, chunk)];
      const std::uint64_t start = (chunk - tensor.first) * content_chunk_bytes;
      const std::uint64_t left = tensor.bytes - start;
      leaves[chunk] =
          leaf_of(tensor.data + start, left < content_chunk_bytes ? left : content_chunk_bytes);
    });
  }
};

/// One level up in every tensor's tree, `level` levels above the leaves: node i of a tensor stands
/// at `first` + i in both.
struct node_hashes : hashed_tensors {
  unsigned level;
  const hash_words* below;
  hash_words* above;

  template <class Block>
  POTL_BODY void operator()(Block& block, hashed_tensors::memory<Block>&) const {
    block.each([&](unsigned thread) {
      const std::uint64_t place = block.index() * Block::threads + thread;
      if (place >= chunks) return;
      const hashed_tensor tensor = all[owner_of(all, count, place)];
      const std::uint64_t leaves = (tensor.bytes + content_chunk_bytes - 1) / content_chunk_bytes;
      const std::uint64_t nodes = ((leaves - 1) >> level) + 1;
      const std::uint64_t left = 2 * (place - tensor.first);
      if (left >= nodes) return;
      const hash_words* from = below + tensor.first + left;
      above[place] = left + 1 < nodes ? node_of(from[0], from[1]) : from[0];
    });
  }
};

/// The root of every tensor; `empty` where there are no bytes.
struct root_digests : hashed_tensors {
  const hash_words* nodes;
  hash_words empty;
  digest* roots;

  template <class Block>
  POTL_BODY void operator()(Block& block, hashed_tensors::memory<Block>&) const {
    block.each([&](unsigned thread) {
      const std::uint64_t place = block.index() * Block::threads + thread;
      if (place >= count) return;
      const hashed_tensor tensor = all[place];
      const hash_words root = tensor.bytes == 0 ? empty : nodes[tensor.first];
      auto* out = reinterpret_cast<std::uint8_t*>(roots + place);
      for (unsigned i = 0; i < digest::size; ++i) {
        out[i] = static_cast<std::uint8_t>(root.at[i / 4] >> (24 - 8 * (i % 4)));
      }
    });
  }
};

}  // namespace potl::cuda

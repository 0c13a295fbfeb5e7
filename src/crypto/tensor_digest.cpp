// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/detail/tensor_digest.hpp>

#include <algorithm>
#include <string>

namespace potl {
namespace {

constexpr std::array<std::uint8_t, 1> leaf_prefix{0};
constexpr std::size_t chunks_of_task = 8;

bytes_view chunk_at(bytes_view bytes, std::size_t index) {
  const std::size_t start = index * content_chunk_bytes;
  return bytes.subspan(start, std::min(content_chunk_bytes, bytes.size() - start));
}

void hash_chunks(bytes_view bytes, std::size_t first, std::size_t last, digest* out) {
  sha256 hasher;
  for (std::size_t i = first; i < last; ++i) {
    hasher.update(leaf_prefix).update(chunk_at(bytes, i));
    out[i] = hasher.finish();
  }
}

}  // namespace

digest content_root(bytes_view bytes) { return content_hasher().update(bytes).finish(); }

digest content_root(bytes_view bytes, const content_runner& run) {
  const std::size_t tasks = bytes.size() / (chunks_of_task * content_chunk_bytes);
  if (tasks < 2) return content_root(bytes);
  std::vector<digest> leaves(static_cast<std::size_t>(content_chunks(bytes.size())));
  run(tasks, [&](std::size_t task) {
    const std::size_t first = task * chunks_of_task;
    const std::size_t last = task + 1 == tasks ? leaves.size() : first + chunks_of_task;
    hash_chunks(bytes, first, last, leaves.data());
  });
  merkle_frontier roots;
  for (const digest& leaf : leaves) roots.append(leaf);
  return roots.root();
}

content_hasher& content_hasher::update(bytes_view bytes) {
  while (!bytes.empty()) {
    if (chunk_bytes_ == 0) chunk_.update(leaf_prefix);
    const bytes_view part = bytes.first(std::min(bytes.size(), content_chunk_bytes - chunk_bytes_));
    chunk_.update(part);
    chunk_bytes_ += part.size();
    bytes = bytes.subspan(part.size());
    if (chunk_bytes_ == content_chunk_bytes) end_chunk();
  }
  return *this;
}

void content_hasher::end_chunk() {
  roots_.append(chunk_.finish());
  chunk_bytes_ = 0;
}

digest content_hasher::finish() {
  if (chunk_bytes_ != 0) end_chunk();
  const digest root = roots_.root();
  roots_ = merkle_frontier();
  return root;
}

merkle_tree content_tree(bytes_view bytes) {
  std::vector<digest> leaves(static_cast<std::size_t>(content_chunks(bytes.size())));
  hash_chunks(bytes, 0, leaves.size(), leaves.data());
  merkle_tree tree;
  for (const digest& leaf : leaves) tree.append(leaf);
  return tree;
}

result<merkle_proof> open_chunk(bytes_view bytes, std::uint64_t index) {
  const std::uint64_t chunks = content_chunks(bytes.size());
  if (index >= chunks) {
    return error{errc::usage,
                 "chunk " + std::to_string(index) + " is not among " + std::to_string(chunks), ""};
  }
  return content_tree(bytes).inclusion_proof(index, chunks);
}

status verify_chunk(const digest& root, std::uint64_t length, std::uint64_t index, bytes_view chunk,
                    proof_view proof) {
  const std::uint64_t chunks = content_chunks(length);
  if (index >= chunks) {
    return error{errc::malformed,
                 "chunk " + std::to_string(index) + " is not among " + std::to_string(chunks), ""};
  }
  const std::uint64_t expected =
      std::min<std::uint64_t>(content_chunk_bytes, length - index * content_chunk_bytes);
  if (chunk.size() != expected) {
    return error{errc::malformed,
                 "chunk " + std::to_string(index) + " has " + std::to_string(expected) +
                     " bytes, not " + std::to_string(chunk.size()),
                 ""};
  }
  return verify_inclusion(index, chunks, leaf_hash(chunk), proof, root);
}

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/detail/tensor_digest.hpp>

#include <algorithm>
#include <exception>
#include <string>
#include <thread>

namespace potl {
namespace {

constexpr std::array<std::uint8_t, 1> leaf_prefix{0};

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

/// The hashes of all chunks. Threads get contiguous shares; one that cannot be started leaves its
/// share to the caller.
std::vector<digest> chunk_hashes(bytes_view bytes, unsigned threads) {
  const auto chunks = static_cast<std::size_t>(content_chunks(bytes.size()));
  std::vector<digest> hashes(chunks);
  const std::size_t shares =
      bytes.size() < content_parallel_bytes
          ? 1
          : std::clamp<std::size_t>(threads, 1, bytes.size() / (content_parallel_bytes / 2));
  const auto bound = [&](std::size_t share) {
    return chunks / shares * share + std::min(share, chunks % shares);
  };
  std::vector<std::exception_ptr> failures(shares);
  const auto work = [&](std::size_t share) noexcept {
    try {
      hash_chunks(bytes, bound(share), bound(share + 1), hashes.data());
    } catch (...) {
      failures[share] = std::current_exception();
    }
  };
  std::vector<std::thread> workers;
  std::size_t started = 1;
  try {
    workers.reserve(shares - 1);
    for (; started < shares; ++started) workers.emplace_back(work, started);
  } catch (const std::system_error&) {
    for (std::size_t share = started; share < shares; ++share) work(share);
  }
  work(0);
  for (std::thread& worker : workers) worker.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return hashes;
}

}  // namespace

digest content_root(bytes_view bytes, unsigned threads) {
  if (threads <= 1 || bytes.size() < content_parallel_bytes) {
    return content_hasher().update(bytes).finish();
  }
  merkle_frontier roots;
  for (const digest& leaf : chunk_hashes(bytes, threads)) roots.append(leaf);
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

merkle_tree content_tree(bytes_view bytes, unsigned threads) {
  merkle_tree tree;
  for (const digest& leaf : chunk_hashes(bytes, threads)) tree.append(leaf);
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

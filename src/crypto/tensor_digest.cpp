// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/detail/tensor_digest.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "chunk_hashes.hpp"

namespace potl {
namespace {

constexpr std::size_t chunks_of_task = detail::chunks_at_once;
constexpr std::uint64_t task_bytes = chunks_of_task * content_chunk_bytes;
static_assert((chunks_of_task & (chunks_of_task - 1)) == 0, "a task is a subtree of every root");

bytes_view chunk_at(bytes_view bytes, std::size_t index) {
  const std::size_t start = index * content_chunk_bytes;
  return bytes.subspan(start, std::min(content_chunk_bytes, bytes.size() - start));
}

/// Hashes the chunks of a task.
std::span<const digest> hash_task(bytes_view part, std::array<digest, chunks_of_task>& leaves) {
  std::array<bytes_view, chunks_of_task> chunks;
  const auto count = static_cast<std::size_t>(content_chunks(part.size()));
  for (std::size_t i = 0; i < count; ++i) chunks[i] = chunk_at(part, i);
  detail::chunk_hashes(std::span(chunks).first(count), leaves.data());
  return std::span(leaves).first(count);
}

digest root_over(std::span<const digest> nodes) {
  merkle_frontier roots;
  for (const digest& node : nodes) roots.append(node);
  return roots.root();
}

/// The root of `length` bytes, of which part(offset, size) is where a task finds its own.
template <class Part>
digest root_of_tasks(std::uint64_t length, const Part& part, const content_runner& run) {
  const auto tasks = static_cast<std::size_t>((length + task_bytes - 1) / task_bytes);
  std::vector<digest> roots(tasks);
  const auto hash = [&](std::size_t task) {
    const std::uint64_t start = task * task_bytes;
    std::array<digest, chunks_of_task> leaves;
    const auto size = static_cast<std::size_t>(std::min(task_bytes, length - start));
    roots[task] = root_over(hash_task(part(start, size), leaves));
  };
  if (tasks > 1) {
    run(tasks, hash);
  } else if (tasks == 1) {
    hash(0);
  }
  return root_over(roots);
}

}  // namespace

digest content_root(bytes_view bytes) {
  return content_root(bytes, [](std::size_t tasks, const std::function<void(std::size_t)>& body) {
    for (std::size_t task = 0; task < tasks; ++task) body(task);
  });
}

digest content_root(bytes_view bytes, const content_runner& run) {
  const auto part = [&](std::uint64_t start, std::size_t size) {
    return bytes.subspan(static_cast<std::size_t>(start), size);
  };
  return root_of_tasks(bytes.size(), part, run);
}

digest content_root(std::uint64_t length, const content_source& source, const content_runner& run) {
  const auto part = [&](std::uint64_t start, std::size_t size) {
    thread_local std::vector<std::uint8_t> buffer(task_bytes);  // new pages cost as much as a copy
    source(start, std::span(buffer).first(size));
    return bytes_view(buffer).first(size);
  };
  return root_of_tasks(length, part, run);
}

merkle_tree content_tree(bytes_view bytes) {
  merkle_tree tree;
  while (!bytes.empty()) {
    const bytes_view part =
        bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(task_bytes, bytes.size())));
    std::array<digest, chunks_of_task> leaves;
    for (const digest& leaf : hash_task(part, leaves)) tree.append(leaf);
    bytes = bytes.subspan(part.size());
  }
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

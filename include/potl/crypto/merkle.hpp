// SPDX-License-Identifier: Apache-2.0
// Merkle trees over SHA-256 as in RFC 6962, section 2.1 (same as RFC 9162, section 2.1).
//
// Claims: under collision resistance of SHA-256, a proof that verifies against a root binds the
// leaf to its index and to the number of leaves, and a consistency proof that verifies shows that
// the old leaves are a prefix of the new ones. Leaves (prefix 0x00) and nodes (prefix 0x01) are
// hashed apart, so a node cannot be presented as a leaf.
// Cost: appending hashes one leaf and on average one node; a proof has at most 64 hashes, and
// making one hashes at most 64 nodes.
// Cannot detect: what the leaves mean. Sizes and indices are 64-bit, and every value of them is
// safe to pass to the verifying functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl {

using proof_view = std::span<const digest>;
using merkle_proof = std::vector<digest>;

/// SHA-256(0x00 || data): the leaf that stands for `data`.
digest leaf_hash(bytes_view data);
/// SHA-256(0x01 || left || right).
digest node_hash(const digest& left, const digest& right);
/// The root of a tree without leaves: SHA-256 of nothing.
digest empty_root();

/// The leaves [start, end) as a tree of their own. RFC 6962 names nodes only; a range is a subtree
/// when start is a multiple of the smallest power of two that is not below its length.
struct subtree {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  bool is_valid() const noexcept;
  friend bool operator==(const subtree&, const subtree&) = default;
};

/// Root of a tree that is only appended to. Memory: one hash per bit of the size.
class merkle_frontier {
 public:
  void append(const digest& leaf);
  std::uint64_t size() const noexcept { return size_; }
  digest root() const;

 private:
  std::array<digest, 64> complete_{};  // complete_[h]: full subtree of 2^h leaves where size has h
  std::uint64_t size_ = 0;
};

/// A tree that also proves. It holds leaf *hashes* and the nodes of complete subtrees, 64 bytes per
/// leaf in all; roots and proofs of every earlier size remain available.
/// Functions that take a size or an index return errc::usage when it lies beyond the tree.
class merkle_tree {
 public:
  /// Appends the hash of a leaf (see leaf_hash) and returns its index.
  std::uint64_t append(const digest& leaf);
  std::uint64_t size() const noexcept { return nodes_.empty() ? 0 : nodes_.front().size(); }
  result<digest> leaf(std::uint64_t index) const;

  digest root() const;
  /// The root when the tree had `size` leaves.
  result<digest> root_at(std::uint64_t size) const;
  /// Shows that leaf `index` is in the tree of the first `size` leaves. Needs index < size.
  result<merkle_proof> inclusion_proof(std::uint64_t index, std::uint64_t size) const;
  /// Shows that the first `old_size` leaves are a prefix of the first `new_size`. Needs
  /// old_size <= new_size; the proof from an empty tree is empty.
  result<merkle_proof> consistency_proof(std::uint64_t old_size, std::uint64_t new_size) const;

  result<digest> subtree_root(subtree range) const;
  result<merkle_proof> subtree_inclusion_proof(std::uint64_t index, subtree range) const;
  result<merkle_proof> subtree_consistency_proof(subtree range, std::uint64_t size) const;

 private:
  digest range_root(std::uint64_t start, std::uint64_t end) const;
  std::vector<std::vector<digest>> nodes_;  // nodes_[h][i]: leaves [i 2^h, (i + 1) 2^h)
};

/// The root that an inclusion proof leads to. malformed: index >= size, or a proof of wrong length.
result<digest> root_from_inclusion(std::uint64_t index, std::uint64_t size, const digest& leaf,
                                   proof_view proof);
/// ok: `leaf` is leaf number `index` of the tree with `size` leaves and this root.
/// mismatch: it is not shown to be; malformed: as above.
status verify_inclusion(std::uint64_t index, std::uint64_t size, const digest& leaf,
                        proof_view proof, const digest& root);

/// Both roots that a consistency proof leads to when `old_root` is taken for granted.
struct consistency_roots {
  digest old_root;
  digest new_root;
};
/// malformed: old_size is 0 (every tree extends the empty one, so such a proof says nothing),
/// old_size > new_size, or a proof of wrong length.
result<consistency_roots> roots_from_consistency(std::uint64_t old_size, std::uint64_t new_size,
                                                 const digest& old_root, proof_view proof);
/// ok: the tree of new_size leaves under new_root extends the one of old_size under old_root.
/// mismatch: not shown to; malformed: as above.
status verify_consistency(std::uint64_t old_size, std::uint64_t new_size, proof_view proof,
                          const digest& old_root, const digest& new_root);

/// verify_inclusion for leaf `index` (counted in the whole tree) under the root of a subtree.
status verify_subtree_inclusion(std::uint64_t index, subtree range, const digest& leaf,
                                proof_view proof, const digest& subtree_root);
/// ok: the subtree with this root is part of the tree of `size` leaves under `root`. An empty
/// subtree is part of every tree: then only its root is compared.
status verify_subtree_consistency(subtree range, std::uint64_t size, proof_view proof,
                                  const digest& subtree_root, const digest& root);

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
// The verifier's half: pure functions that follow the recursive definitions, so that they can be
// compared with the RFC line by line. Recursion is at most 64 deep because sizes have 64 bits.
#include <potl/crypto/merkle.hpp>

#include <string>

#include "merkle_math.hpp"

namespace potl {
namespace {

using detail::split;

/// Hands out the proof's hashes in order; too few is remembered instead of thrown.
class proof_reader {
 public:
  explicit proof_reader(proof_view proof) : proof_(proof) {}

  digest next() {
    if (position_ == proof_.size()) {
      exhausted_ = true;
      return {};
    }
    return proof_[position_++];
  }
  /// Every hash was used, and none was missing.
  bool fits() const { return !exhausted_ && position_ == proof_.size(); }

 private:
  proof_view proof_;
  std::size_t position_ = 0;
  bool exhausted_ = false;
};

error wrong_length(proof_view proof) {
  return {errc::malformed,
          "a proof of " + std::to_string(proof.size()) + " hashes does not fit this tree", ""};
}

digest inclusion_root(std::uint64_t index, std::uint64_t size, const digest& leaf,
                      proof_reader& proof) {
  if (size == 1) return leaf;
  const std::uint64_t middle = split(size);
  if (index < middle) {
    const digest left = inclusion_root(index, middle, leaf, proof);
    return node_hash(left, proof.next());
  }
  const digest right = inclusion_root(index - middle, size - middle, leaf, proof);
  return node_hash(proof.next(), right);
}

/// Roots of [start, end) and of the tree of `size` leaves. `known`: the range was not cut on the
/// way here, so that its root is the claimed one.
consistency_roots subtree_roots(std::uint64_t start, std::uint64_t end, std::uint64_t size,
                                bool known, const digest& claimed, proof_reader& proof) {
  if (start == 0 && end == size) {
    const digest root = known ? claimed : proof.next();
    return {root, root};
  }
  const std::uint64_t middle = split(size);
  if (end <= middle) {
    consistency_roots roots = subtree_roots(start, end, middle, known, claimed, proof);
    roots.new_root = node_hash(roots.new_root, proof.next());
    return roots;
  }
  if (start >= middle) {
    consistency_roots roots =
        subtree_roots(start - middle, end - middle, size - middle, known, claimed, proof);
    roots.new_root = node_hash(proof.next(), roots.new_root);
    return roots;
  }
  consistency_roots roots = subtree_roots(0, end - middle, size - middle, false, claimed, proof);
  const digest shared = proof.next();
  return {node_hash(shared, roots.old_root), node_hash(shared, roots.new_root)};
}

/// Precondition: range is valid, not empty, and ends within `size`.
result<consistency_roots> roots_of(subtree range, std::uint64_t size, const digest& claimed,
                                   proof_view proof) {
  proof_reader reader(proof);
  const consistency_roots roots =
      subtree_roots(range.start, range.end, size, true, claimed, reader);
  if (!reader.fits()) return wrong_length(proof);
  return roots;
}

status compare(const digest& computed, const digest& expected, const char* what) {
  if (computed == expected) return unit{};
  return error{
      errc::mismatch,
      std::string(what) + " leads to the root " + computed.hex() + ", not to " + expected.hex(),
      ""};
}

status compare(const result<consistency_roots>& roots, const digest& old_root,
               const digest& new_root) {
  if (!roots) return roots.why();
  if (const status old_status = compare(roots->old_root, old_root, "the consistency proof");
      !old_status) {
    return old_status.why();
  }
  return compare(roots->new_root, new_root, "the consistency proof");
}

}  // namespace

result<digest> root_from_inclusion(std::uint64_t index, std::uint64_t size, const digest& leaf,
                                   proof_view proof) {
  if (index >= size) {
    return error{errc::malformed,
                 "leaf " + std::to_string(index) + " is not among " + std::to_string(size), ""};
  }
  proof_reader reader(proof);
  const digest root = inclusion_root(index, size, leaf, reader);
  if (!reader.fits()) return wrong_length(proof);
  return root;
}

status verify_inclusion(std::uint64_t index, std::uint64_t size, const digest& leaf,
                        proof_view proof, const digest& root) {
  const result<digest> computed = root_from_inclusion(index, size, leaf, proof);
  if (!computed) return computed.why();
  return compare(*computed, root, "the inclusion proof");
}

result<consistency_roots> roots_from_consistency(std::uint64_t old_size, std::uint64_t new_size,
                                                 const digest& old_root, proof_view proof) {
  if (old_size == 0) {
    return error{errc::malformed, "every tree extends the empty one: nothing is proven", ""};
  }
  if (old_size > new_size) {
    return error{errc::malformed,
                 "a tree of " + std::to_string(new_size) + " leaves cannot extend one of " +
                     std::to_string(old_size),
                 ""};
  }
  return roots_of({0, old_size}, new_size, old_root, proof);
}

status verify_consistency(std::uint64_t old_size, std::uint64_t new_size, proof_view proof,
                          const digest& old_root, const digest& new_root) {
  return compare(roots_from_consistency(old_size, new_size, old_root, proof), old_root, new_root);
}

status verify_subtree_inclusion(std::uint64_t index, subtree range, const digest& leaf,
                                proof_view proof, const digest& subtree_root) {
  if (!range.is_valid()) return error{errc::malformed, "these leaves are not a subtree", ""};
  if (index < range.start) {
    return error{errc::malformed, "leaf " + std::to_string(index) + " lies before the subtree", ""};
  }
  return verify_inclusion(index - range.start, range.end - range.start, leaf, proof, subtree_root);
}

status verify_subtree_consistency(subtree range, std::uint64_t size, proof_view proof,
                                  const digest& subtree_root, const digest& root) {
  if (!range.is_valid() || range.end > size) {
    return error{errc::malformed, "these leaves are not a subtree of the tree", ""};
  }
  if (range.start == range.end) {
    if (!proof.empty()) return wrong_length(proof);
    return compare(empty_root(), subtree_root, "the empty subtree");
  }
  return compare(roots_of(range, size, subtree_root, proof), subtree_root, root);
}

}  // namespace potl

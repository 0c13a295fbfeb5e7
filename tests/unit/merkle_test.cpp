// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <limits>
#include <vector>

#include <potl/crypto/hasher.hpp>
#include <potl/crypto/merkle.hpp>

#include "long_tests.hpp"

namespace {

using potl::digest;

constexpr std::uint64_t most = 64;

potl::merkle_tree tree_of(std::uint64_t size) {
  potl::merkle_tree tree;
  for (std::uint64_t i = 0; i < size; ++i) {
    tree.append(potl::leaf_hash(potl::as_bytes_view("leaf " + std::to_string(i))));
  }
  return tree;
}

/// MTH of RFC 6962, section 2.1, as written there.
digest definition(const potl::merkle_tree& tree, std::uint64_t start, std::uint64_t end) {
  if (start == end) return potl::sha256_of(potl::bytes_view{});
  if (end - start == 1) return tree.leaf(start).value();
  std::uint64_t k = 1;
  while (2 * k < end - start) k *= 2;
  return potl::node_hash(definition(tree, start, start + k), definition(tree, start + k, end));
}

/// Calls `rejected` with every proof that differs from `proof` in one bit, and with every proof
/// that lacks its last hash, lacks its first, or has one more.
template <class Function>
void for_each_damage(const potl::merkle_proof& proof, Function rejected) {
  // A bit of each byte, another one each time; all of them in the long tests.
  static std::size_t turn = 0;
  const std::size_t apart = potl::test::is_full() ? 1 : 8;
  potl::merkle_proof damaged = proof;
  for (digest& hash : damaged) {
    for (std::size_t bit = turn++ % apart; bit < 256; bit += apart) {
      hash.bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
      rejected(damaged);
      hash.bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    }
  }
  if (!proof.empty()) {
    rejected({proof.begin(), proof.end() - 1});
    rejected({proof.begin() + 1, proof.end()});
  }
  damaged.push_back(digest{});
  rejected(damaged);
}

}  // namespace

TEST_CASE("every root, also of earlier sizes, is the one that RFC 6962 defines") {
  const potl::merkle_tree tree = tree_of(most);
  potl::merkle_frontier frontier;
  REQUIRE(tree.root_at(0).value() == potl::empty_root());
  REQUIRE(frontier.root() == potl::empty_root());
  for (std::uint64_t size = 1; size <= most; ++size) {
    frontier.append(tree.leaf(size - 1).value());
    REQUIRE(frontier.size() == size);
    REQUIRE(frontier.root() == definition(tree, 0, size));
    REQUIRE(tree.root_at(size).value() == definition(tree, 0, size));
    REQUIRE(tree_of(size).root() == definition(tree, 0, size));
  }
}

TEST_CASE("inclusion: trees of up to 64 leaves, every index; every damaged proof is rejected") {
  const potl::merkle_tree tree = tree_of(most);
  std::uint64_t accepted = 0;
  std::uint64_t wrongly_accepted = 0;
  for (std::uint64_t size = 1; size <= most; ++size) {
    const digest root = tree.root_at(size).value();
    for (std::uint64_t index = 0; index < size; ++index) {
      const digest leaf = tree.leaf(index).value();
      const potl::merkle_proof proof = tree.inclusion_proof(index, size).value();
      accepted += potl::verify_inclusion(index, size, leaf, proof, root).has_value();
      for_each_damage(proof, [&](const potl::merkle_proof& damaged) {
        wrongly_accepted += potl::verify_inclusion(index, size, leaf, damaged, root).has_value();
      });
      for (std::uint64_t other = 0; other < size; ++other) {
        if (other == index) continue;
        wrongly_accepted += potl::verify_inclusion(other, size, leaf, proof, root).has_value();
      }
    }
  }
  REQUIRE(accepted == most * (most + 1) / 2);
  REQUIRE(wrongly_accepted == 0);
}

TEST_CASE("consistency: every pair of sizes up to 64; every damaged proof is rejected") {
  const potl::merkle_tree tree = tree_of(most);
  std::uint64_t accepted = 0;
  std::uint64_t wrongly_accepted = 0;
  for (std::uint64_t size = 1; size <= most; ++size) {
    const digest root = tree.root_at(size).value();
    for (std::uint64_t old_size = 1; old_size <= size; ++old_size) {
      const digest old_root = tree.root_at(old_size).value();
      const potl::merkle_proof proof = tree.consistency_proof(old_size, size).value();
      accepted += potl::verify_consistency(old_size, size, proof, old_root, root).has_value();
      for_each_damage(proof, [&](const potl::merkle_proof& damaged) {
        wrongly_accepted +=
            potl::verify_consistency(old_size, size, damaged, old_root, root).has_value();
      });
      if (old_size != size) {
        wrongly_accepted +=
            potl::verify_consistency(old_size, size, proof, root, old_root).has_value();
        wrongly_accepted += potl::verify_consistency(old_size, size, proof, root, root).has_value();
      }
    }
  }
  REQUIRE(accepted == most * (most + 1) / 2);
  REQUIRE(wrongly_accepted == 0);
}

TEST_CASE("subtrees: every valid range of a tree of 33 leaves is proven, and only with its root") {
  const std::uint64_t size = 33;
  const potl::merkle_tree tree = tree_of(size);
  std::uint64_t ranges = 0;
  for (std::uint64_t start = 0; start < size; ++start) {
    for (std::uint64_t end = start + 1; end <= size; ++end) {
      const potl::subtree range{start, end};
      if (!range.is_valid()) {
        REQUIRE(tree.subtree_root(range).why().code == potl::errc::usage);
        continue;
      }
      ++ranges;
      const digest root = tree.subtree_root(range).value();
      REQUIRE(root == definition(tree, start, end));
      const auto proof = tree.subtree_consistency_proof(range, size).value();
      REQUIRE(potl::verify_subtree_consistency(range, size, proof, root, tree.root()));
      const digest other = potl::leaf_hash(root);
      REQUIRE_FALSE(potl::verify_subtree_consistency(range, size, proof, other, tree.root()));
      REQUIRE_FALSE(potl::verify_subtree_consistency(range, size, proof, root, other));
      for (std::uint64_t index = start; index < end; ++index) {
        const digest leaf = tree.leaf(index).value();
        const auto inclusion = tree.subtree_inclusion_proof(index, range).value();
        REQUIRE(potl::verify_subtree_inclusion(index, range, leaf, inclusion, root));
        REQUIRE_FALSE(potl::verify_subtree_inclusion(index, range, leaf, inclusion, other));
      }
    }
  }
  REQUIRE(ranges > size);
}

TEST_CASE("a wrong root is a mismatch, an impossible proof is malformed") {
  const potl::merkle_tree tree = tree_of(5);
  const digest leaf = tree.leaf(2).value();
  const auto proof = tree.inclusion_proof(2, 5).value();
  REQUIRE(potl::verify_inclusion(2, 5, leaf, proof, leaf).why().code == potl::errc::mismatch);
  REQUIRE(potl::verify_inclusion(2, 5, leaf, {}, tree.root()).why().code == potl::errc::malformed);
  REQUIRE(potl::verify_inclusion(5, 5, leaf, proof, tree.root()).why().code ==
          potl::errc::malformed);
  REQUIRE(potl::verify_consistency(0, 5, {}, potl::empty_root(), tree.root()).why().code ==
          potl::errc::malformed);
}

TEST_CASE("a leaf before a subtree is named as the caller counts it") {
  const potl::merkle_tree tree = tree_of(8);
  const auto refused =
      potl::verify_subtree_inclusion(3, {4, 8}, tree.leaf(3).value(), {}, tree.root()).why();
  REQUIRE(refused.code == potl::errc::malformed);
  REQUIRE(refused.message == "leaf 3 lies before the subtree");
}

TEST_CASE("a node cannot be presented as a leaf") {
  const potl::merkle_tree tree = tree_of(2);
  std::vector<std::uint8_t> node(1, 1);
  for (std::uint64_t i = 0; i < 2; ++i) {
    const digest leaf = tree.leaf(i).value();
    node.insert(node.end(), leaf.bytes.begin(), leaf.bytes.end());
  }
  REQUIRE(potl::sha256_of(node) == tree.root());
  REQUIRE(potl::leaf_hash(node) != tree.root());
  node.erase(node.begin());
  REQUIRE(potl::leaf_hash(node) != tree.root());
}

TEST_CASE("hostile sizes and indices are answered at once and never accepted") {
  constexpr std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  const std::vector<std::uint64_t> values{0,        1,   2, 3, huge / 2, huge / 2 + 1, huge / 2 + 2,
                                          huge - 1, huge};
  const digest some = potl::leaf_hash({});
  for (std::uint64_t a : values) {
    for (std::uint64_t b : values) {
      for (std::size_t length = 0; length <= 130; ++length) {
        const potl::merkle_proof proof(length, some);
        const bool trivial = length == 0;
        if (!(trivial && a == 0 && b == 1)) {
          REQUIRE_FALSE(potl::verify_inclusion(a, b, some, proof, some));
        }
        if (!(trivial && a == b && a != 0)) {
          REQUIRE_FALSE(potl::verify_consistency(a, b, proof, some, some));
        }
        if (!(trivial && a < b && b - a == 1)) {
          REQUIRE_FALSE(potl::verify_subtree_inclusion(a, {a, b}, some, proof, some));
        }
        if (!(trivial && a == 0 && b == huge)) {
          REQUIRE_FALSE(potl::verify_subtree_consistency({a, b}, huge, proof, some, some));
        }
      }
    }
  }
  const potl::merkle_tree tree = tree_of(3);
  REQUIRE(tree.root_at(huge).why().code == potl::errc::usage);
  REQUIRE(tree.leaf(tree.size()).why().code == potl::errc::usage);
  REQUIRE(tree.leaf(huge).why().code == potl::errc::usage);
  REQUIRE(tree.inclusion_proof(huge, 3).why().code == potl::errc::usage);
  REQUIRE(tree.inclusion_proof(0, huge).why().code == potl::errc::usage);
  REQUIRE(tree.consistency_proof(huge, huge).why().code == potl::errc::usage);
  REQUIRE(tree.consistency_proof(3, 2).why().code == potl::errc::usage);
}

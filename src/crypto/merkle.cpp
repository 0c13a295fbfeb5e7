// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/merkle.hpp>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include <potl/crypto/hasher.hpp>

#include "merkle_math.hpp"

namespace potl {
namespace {

using detail::split;

error beyond(std::uint64_t asked, std::uint64_t size) {
  return {errc::usage,
          "the tree has " + std::to_string(size) + " leaves, " + std::to_string(asked) +
              " was asked for",
          ""};
}

constexpr auto height(std::uint64_t power_of_two) {
  return static_cast<std::size_t>(std::countr_zero(power_of_two));
}

}  // namespace

digest leaf_hash(bytes_view data) {
  static constexpr std::array<std::uint8_t, 1> prefix{0};
  return sha256_of(prefix, data);
}

digest node_hash(const digest& left, const digest& right) {
  // One update of 65 bytes is faster than three.
  std::array<std::uint8_t, 1 + 2 * digest::size> message;
  message[0] = 1;
  std::copy(left.bytes.begin(), left.bytes.end(), message.begin() + 1);
  std::copy(right.bytes.begin(), right.bytes.end(), message.begin() + 1 + digest::size);
  return sha256_of(message);
}

digest empty_root() { return sha256_of(bytes_view{}); }

bool subtree::is_valid() const noexcept {
  if (start > end) return false;
  const std::uint64_t length = end - start;
  if (length == 0) return true;
  if (length > (std::uint64_t{1} << 63)) return start == 0;
  return start % std::bit_ceil(length) == 0;
}

void merkle_frontier::append(const digest& leaf) {
  digest node = leaf;
  std::size_t level = 0;
  for (std::uint64_t rest = size_; rest & 1; rest >>= 1) {
    node = node_hash(complete_[level++], node);
  }
  complete_[level] = node;
  ++size_;
}

digest merkle_frontier::root() const {
  std::optional<digest> node;
  for (std::uint64_t rest = size_; rest != 0; rest &= rest - 1) {
    const digest& left = complete_[height(rest & (~rest + 1))];
    node = node ? node_hash(left, *node) : left;
  }
  return node ? *node : empty_root();
}

std::uint64_t merkle_tree::append(const digest& leaf) {
  const std::uint64_t index = size();
  digest node = leaf;
  std::size_t level = 0;
  for (std::uint64_t rest = index;; rest >>= 1, ++level) {
    if (level == nodes_.size()) nodes_.emplace_back();
    nodes_[level].push_back(node);
    if ((rest & 1) == 0) return index;
    node = node_hash(nodes_[level][nodes_[level].size() - 2], node);
  }
}

result<digest> merkle_tree::leaf(std::uint64_t index) const {
  if (index >= size()) return beyond(index, size());
  return nodes_[0][index];
}

digest merkle_tree::root() const { return size() == 0 ? empty_root() : range_root(0, size()); }

result<digest> merkle_tree::root_at(std::uint64_t size_then) const {
  return subtree_root({0, size_then});
}

result<merkle_proof> merkle_tree::inclusion_proof(std::uint64_t index,
                                                  std::uint64_t size_then) const {
  return subtree_inclusion_proof(index, {0, size_then});
}

result<merkle_proof> merkle_tree::consistency_proof(std::uint64_t old_size,
                                                    std::uint64_t new_size) const {
  return subtree_consistency_proof({0, old_size}, new_size);
}

result<digest> merkle_tree::subtree_root(subtree range) const {
  if (range.end > size()) return beyond(range.end, size());
  if (!range.is_valid()) return error{errc::usage, "these leaves are not a subtree", ""};
  return range.start == range.end ? empty_root() : range_root(range.start, range.end);
}

result<merkle_proof> merkle_tree::subtree_inclusion_proof(std::uint64_t index,
                                                          subtree range) const {
  if (range.end > size()) return beyond(range.end, size());
  if (!range.is_valid()) return error{errc::usage, "these leaves are not a subtree", ""};
  if (index < range.start || index >= range.end) return beyond(index, range.end);
  // Walk from the root of the range to the leaf; the proof lists the siblings from the leaf up.
  merkle_proof proof;
  std::uint64_t start = range.start;
  std::uint64_t end = range.end;
  while (end - start > 1) {
    const std::uint64_t middle = start + split(end - start);
    if (index < middle) {
      proof.push_back(range_root(middle, end));
      end = middle;
    } else {
      proof.push_back(range_root(start, middle));
      start = middle;
    }
  }
  return merkle_proof(proof.rbegin(), proof.rend());
}

result<merkle_proof> merkle_tree::subtree_consistency_proof(subtree range,
                                                            std::uint64_t size_then) const {
  if (size_then > size()) return beyond(size_then, size());
  if (range.end > size_then) return beyond(range.end, size_then);
  if (!range.is_valid()) return error{errc::usage, "these leaves are not a subtree", ""};
  if (range.start == range.end) return merkle_proof{};
  // Walk from the root of the whole tree to the node at which [start, end) is complete. When the
  // range ends inside a node, its part to the left of the split is shared by both trees.
  merkle_proof proof;
  std::uint64_t first = 0;
  std::uint64_t last = size_then;
  std::uint64_t start = range.start;
  while (first != start || last != range.end) {
    const std::uint64_t middle = first + split(last - first);
    if (range.end <= middle) {
      proof.push_back(range_root(middle, last));
      last = middle;
    } else {
      proof.push_back(range_root(first, middle));
      first = middle;
      start = std::max(start, middle);
    }
  }
  // The verifier knows the range's root already, unless a split has cut the range.
  if (start != range.start) proof.push_back(range_root(first, last));
  return merkle_proof(proof.rbegin(), proof.rend());
}

digest merkle_tree::range_root(std::uint64_t start, std::uint64_t end) const {
  const std::uint64_t length = end - start;
  if (std::has_single_bit(length)) {
    const std::size_t level = height(length);
    return nodes_[level][start >> level];
  }
  const std::uint64_t middle = start + split(length);
  return node_hash(range_root(start, middle), range_root(middle, end));
}

}  // namespace potl

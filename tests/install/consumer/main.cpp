// SPDX-License-Identifier: Apache-2.0
// Commits to three leaves and checks a proof, with nothing but the installed header and library.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <potl/potl.hpp>

int main() {
  potl::merkle_tree tree;
  std::vector<potl::digest> leaves;
  for (std::uint8_t i = 0; i < 3; ++i) {
    leaves.push_back(potl::leaf_hash(potl::bytes_view(&i, 1)));
    tree.append(leaves.back());
  }
  const auto proof = tree.inclusion_proof(1, tree.size());
  if (!proof) return 1;
  std::printf("%s\n", tree.root().hex().c_str());
  return potl::verify_inclusion(1, tree.size(), leaves[1], *proof, tree.root()) ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// Appending 32-byte leaves to a tree against as many bare OpenSSL hashes of a leaf and of a node.
#include <cstdint>
#include <vector>

#include <openssl/evp.h>

#include <potl/core/detail/rng.hpp>
#include <potl/crypto/merkle.hpp>

#include "bench.hpp"

int main() {
  constexpr std::size_t leaves = std::size_t{1} << 17;
  std::vector<std::uint8_t> bytes(leaves * 32 + 65);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(potl::random_bits({1, 2}, i));
  }
  EVP_MD* md = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  unsigned char out[32];
  const auto hash = [&](const std::uint8_t* data, std::size_t size) {
    EVP_DigestInit_ex2(context, md, nullptr);
    EVP_DigestUpdate(context, data, size);
    EVP_DigestFinal_ex(context, out, nullptr);
  };
  const auto bare = [&] {
    for (std::size_t i = 0; i < leaves; ++i) {
      hash(&bytes[32 * i], 33);
      hash(&bytes[32 * i], 65);
    }
  };
  const auto append = [&] {
    potl::merkle_tree tree;
    for (std::size_t i = 0; i < leaves; ++i) {
      tree.append(potl::leaf_hash(potl::bytes_view(&bytes[32 * i], 32)));
    }
  };
  potl::bench::report(
      "merkle", {potl::bench::compare("merkle.append", static_cast<double>(leaves), "leaves/s",
                                      "OpenSSL SHA-256, leaf and node", 0.7, 25, bare, append)});
  EVP_MD_CTX_free(context);
  EVP_MD_free(md);
}

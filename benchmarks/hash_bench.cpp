// SPDX-License-Identifier: Apache-2.0
// The content root of 64 MiB, and a code of them, against one plain SHA-256 over the same bytes.
#include <cstdint>
#include <vector>

#include <openssl/evp.h>

#include <potl/core/detail/rng.hpp>
#include <potl/crypto/detail/one_time_code.hpp>
#include <potl/crypto/detail/tensor_digest.hpp>
#include <potl/numeric/detail/executor.hpp>

#include "bench.hpp"

int main() {
  std::vector<std::uint8_t> bytes(std::size_t{64} << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(potl::random_bits({1, 2}, i / 8) >> 8 * (i % 8));
  }
  EVP_MD* md = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  unsigned char out[32];
  const auto raw = [&] {
    EVP_DigestInit_ex2(context, md, nullptr);
    EVP_DigestUpdate(context, bytes.data(), bytes.size());
    EVP_DigestFinal_ex(context, out, nullptr);
  };
  const auto pool = potl::numeric::make_thread_pool(2);
  const auto alone = [&] { potl::content_root(bytes); };
  const auto on_both = [&] {
    potl::content_root(bytes, [&](std::size_t tasks, const auto& body) { pool->run(tasks, body); });
  };
  const auto code = [&] {
    potl::one_time_code one{potl::digest{}};
    constexpr std::size_t part = 256 * 1024;
    for (std::size_t at = 0; at < bytes.size(); at += part) {
      one.update(potl::bytes_view(bytes).subspan(at, part));
    }
    one.finish();
  };
  const auto amount = static_cast<double>(bytes.size());
  const char* baseline = "OpenSSL SHA-256, one thread";
  potl::bench::report("hash", {potl::bench::compare("hash.tensor_digest.1t", amount, "bytes/s",
                                                    baseline, 0.92, 25, raw, alone),
                               potl::bench::compare("hash.tensor_digest.2t", amount, "bytes/s",
                                                    baseline, 1.6, 25, raw, on_both),
                               potl::bench::compare("hash.one_time_code.1t", amount, "bytes/s",
                                                    baseline, 3, 25, raw, code)});
  EVP_MD_CTX_free(context);
  EVP_MD_free(md);
}

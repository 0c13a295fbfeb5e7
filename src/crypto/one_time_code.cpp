// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/detail/one_time_code.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "openssl.hpp"

namespace potl {
namespace {

using detail::require;

EVP_MAC* poly1305() {
  // Looked up once, and never freed: as in hasher.cpp.
  static EVP_MAC* const mac = [] {
    EVP_MAC* fetched = EVP_MAC_fetch(nullptr, "POLY1305", nullptr);
    require(fetched != nullptr, "EVP_MAC_fetch");
    return fetched;
  }();
  return mac;
}

#if defined(__x86_64__)
__attribute__((target("avx"))) void zero_upper_halves() { _mm256_zeroupper(); }
#endif

// OpenSSL 3.0 ends a code of some lengths with numbers in the upper halves of vector registers.
// From then on instructions of SSE wait for those: sums of this thread took seven times as long.
void clean_vector_registers() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx")) zero_upper_halves();
#endif
}

}  // namespace

struct one_time_code::state {
  detail::mac_context context{EVP_MAC_CTX_new(poly1305())};
};

one_time_code::one_time_code(const digest& key) : state_(std::make_unique<state>()) {
  require(state_->context != nullptr, "EVP_MAC_CTX_new");
  require(EVP_MAC_init(state_->context.get(), key.bytes.data(), key.bytes.size(), nullptr) == 1,
          "EVP_MAC_init");
}
one_time_code::~one_time_code() = default;
one_time_code::one_time_code(one_time_code&&) noexcept = default;
one_time_code& one_time_code::operator=(one_time_code&&) noexcept = default;

one_time_code& one_time_code::update(bytes_view bytes) {
  require(EVP_MAC_update(state_->context.get(), bytes.data(), bytes.size()) == 1, "EVP_MAC_update");
  return *this;
}

one_time_code::value one_time_code::finish() {
  value out;
  std::size_t written = 0;
  const int done = EVP_MAC_final(state_->context.get(), out.data(), &written, out.size());
  clean_vector_registers();
  require(done == 1 && written == out.size(), "EVP_MAC_final");
  return out;
}

}  // namespace potl

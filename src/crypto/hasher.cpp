// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/hasher.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include <openssl/core_names.h>
#include <openssl/crypto.h>

#include <potl/core/file.hpp>

#include "openssl.hpp"

namespace potl {
namespace {

using detail::require;

// Looking an algorithm up takes longer than hashing a Merkle node, so each is looked up once. The
// objects are never freed: other static destructors may still hash.
const EVP_MD* fetched_md(const char* name) {
  EVP_MD* md = EVP_MD_fetch(nullptr, name, nullptr);
  require(md != nullptr, "EVP_MD_fetch");
  return md;
}

const EVP_MD* sha256_md() {
  static const EVP_MD* const md = fetched_md("SHA256");
  return md;
}

const EVP_MD* sha512_md() {
  static const EVP_MD* const md = fetched_md("SHA512");
  return md;
}

detail::mac_context hmac_context(const char* digest_name) {
  static EVP_MAC* const mac = [] {
    EVP_MAC* fetched = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    require(fetched != nullptr, "EVP_MAC_fetch");
    return fetched;
  }();
  detail::mac_context context(EVP_MAC_CTX_new(mac));
  require(context != nullptr, "EVP_MAC_CTX_new");
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, const_cast<char*>(digest_name), 0),
      OSSL_PARAM_construct_end()};
  require(EVP_MAC_CTX_set_params(context.get(), parameters) == 1, "EVP_MAC_CTX_set_params");
  return context;
}

void set_key(EVP_MAC_CTX* context, bytes_view key) {
  // A null pointer would mean "keep the old key", and an empty span may hold one.
  static constexpr std::uint8_t no_bytes = 0;
  const std::uint8_t* bytes = key.empty() ? &no_bytes : key.data();
  require(EVP_MAC_init(context, bytes, key.size(), nullptr) == 1, "EVP_MAC_init");
}

void mac_into(EVP_MAC_CTX* context, bytes_view message, std::span<std::uint8_t> out) {
  std::size_t written = 0;
  require(EVP_MAC_update(context, message.data(), message.size()) == 1, "EVP_MAC_update");
  require(EVP_MAC_final(context, out.data(), &written, out.size()) == 1 && written == out.size(),
          "EVP_MAC_final");
}

}  // namespace

struct sha256::state {
  detail::digest_context context{EVP_MD_CTX_new()};
  bool started = false;

  state() { require(context != nullptr, "EVP_MD_CTX_new"); }

  void start() {
    require(EVP_DigestInit_ex2(context.get(), sha256_md(), nullptr) == 1, "EVP_DigestInit_ex2");
    started = true;
  }
};

sha256::sha256() : state_(std::make_unique<state>()) {}
sha256::~sha256() = default;
sha256::sha256(sha256&&) noexcept = default;
sha256& sha256::operator=(sha256&&) noexcept = default;

sha256& sha256::update(bytes_view bytes) {
  if (!state_->started) state_->start();
  require(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1,
          "EVP_DigestUpdate");
  return *this;
}

digest sha256::finish() {
  if (!state_->started) state_->start();
  state_->started = false;
  digest out;
  require(EVP_DigestFinal_ex(state_->context.get(), out.bytes.data(), nullptr) == 1,
          "EVP_DigestFinal_ex");
  return out;
}

void sha256::reset() { state_->started = false; }

digest detail::sha256_of_parts(std::span<const bytes_view> parts) {
  // One context per thread: making one costs as much as a short hash.
  thread_local sha256 hasher;
  hasher.reset();
  for (bytes_view part : parts) hasher.update(part);
  return hasher.finish();
}

sha512_digest sha512_of(bytes_view bytes) {
  sha512_digest out;
  require(EVP_Digest(bytes.data(), bytes.size(), out.data(), nullptr, sha512_md(), nullptr) == 1,
          "EVP_Digest");
  return out;
}

struct hmac_sha256_key::state {
  detail::mac_context context = hmac_context("SHA256");
  bool fresh = true;
};

hmac_sha256_key::hmac_sha256_key(bytes_view key) : state_(std::make_unique<state>()) {
  set_key(state_->context.get(), key);
}
hmac_sha256_key::~hmac_sha256_key() = default;
hmac_sha256_key::hmac_sha256_key(hmac_sha256_key&&) noexcept = default;
hmac_sha256_key& hmac_sha256_key::operator=(hmac_sha256_key&&) noexcept = default;

void hmac_sha256_key::rekey(bytes_view key) {
  set_key(state_->context.get(), key);
  state_->fresh = true;
}

digest hmac_sha256_key::of(bytes_view message) {
  EVP_MAC_CTX* context = state_->context.get();
  if (!std::exchange(state_->fresh, false)) {
    require(EVP_MAC_init(context, nullptr, 0, nullptr) == 1, "EVP_MAC_init");
  }
  digest out;
  mac_into(context, message, out.bytes);
  return out;
}

result<digest> sha256_of_file(const file_pieces& file) {
  sha256 hash;
  std::vector<std::uint8_t> piece;
  for (std::uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(static_cast<std::size_t>(
        std::min<std::uint64_t>(std::uint64_t{4} << 20, file.size() - at)));
    if (const status read = file.read(at, piece); !read) return read.why();
    hash.update(piece);
  }
  if (const status same = file.unchanged(); !same) return same.why();
  return hash.finish();
}

digest hmac_sha256(bytes_view key, bytes_view message) { return hmac_sha256_key(key).of(message); }

sha512_digest hmac_sha512(bytes_view key, bytes_view message) {
  const detail::mac_context context = hmac_context("SHA512");
  set_key(context.get(), key);
  sha512_digest out;
  mac_into(context.get(), message, out);
  return out;
}

bool equal_constant_time(bytes_view a, bytes_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace potl

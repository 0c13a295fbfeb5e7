// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/signature.hpp>

#include <algorithm>
#include <utility>

#include "pem.hpp"

namespace potl {
namespace {

using detail::key_handle;
using detail::require;

constexpr const char* for_signatures = "`potl keygen` without --encryption writes one";

}  // namespace

result<public_key> public_key::from_raw(bytes_view raw) {
  if (raw.size() != size) {
    return error{errc::malformed,
                 "an Ed25519 public key has 32 bytes, not " + std::to_string(raw.size()), ""};
  }
  std::array<std::uint8_t, size> bytes{};
  std::copy(raw.begin(), raw.end(), bytes.begin());
  return public_key(bytes);
}

result<public_key> public_key::from_pem(std::string_view pem) {
  const key_handle key = detail::read_public_pem(pem, detail::ed25519);
  if (key) return public_key(detail::raw_public(key.get()));
  if (detail::read_public_pem(pem, detail::x25519)) {
    return detail::bad_pem("a key that verifies signatures, but one for encryption",
                           for_signatures);
  }
  if (detail::read_private_pem(pem, detail::ed25519)) {
    return detail::bad_pem("a public key, but a secret one",
                           "name its other half, the *.pub that `potl keygen` wrote");
  }
  return detail::bad_pem("an Ed25519 public key in PEM form",
                         "`potl keygen` writes one, named *.pub; in C++ public_key::to_pem()");
}

std::string public_key::to_pem() const {
  return detail::write_public_pem(detail::public_of(raw_, detail::ed25519).get());
}

std::string public_key::hex() const { return digest{raw_}.hex(); }

status public_key::verify(bytes_view message, bytes_view signature) const {
  const key_handle key = detail::public_of(raw_, detail::ed25519);
  const detail::digest_context context(EVP_MD_CTX_new());
  require(context != nullptr, "EVP_MD_CTX_new");
  require(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1,
          "EVP_DigestVerifyInit");
  const int outcome = EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                                       message.data(), message.size());
  ERR_clear_error();
  if (outcome == 1) return unit{};
  return error{errc::mismatch, "the signature is not by the key " + hex(), ""};
}

struct signing_key::state {
  key_handle key;
};

signing_key::signing_key(std::unique_ptr<state> loaded)
    : state_(std::move(loaded)), public_(detail::raw_public(state_->key.get())) {}
signing_key::signing_key(signing_key&&) noexcept = default;
signing_key& signing_key::operator=(signing_key&&) noexcept = default;
signing_key::~signing_key() = default;

signing_key signing_key::generate() {
  auto fresh = std::make_unique<state>();
  fresh->key.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, detail::ed25519));
  require(fresh->key != nullptr, "EVP_PKEY_Q_keygen");
  return signing_key(std::move(fresh));
}

result<signing_key> signing_key::from_seed(bytes_view seed) {
  if (seed.size() != 32) {
    return error{errc::malformed, "a seed has 32 bytes, not " + std::to_string(seed.size()), ""};
  }
  auto loaded = std::make_unique<state>();
  loaded->key.reset(
      EVP_PKEY_new_raw_private_key_ex(nullptr, detail::ed25519, nullptr, seed.data(), seed.size()));
  require(loaded->key != nullptr, "EVP_PKEY_new_raw_private_key_ex");
  return signing_key(std::move(loaded));
}

result<signing_key> signing_key::from_pem(std::string_view pem) {
  auto loaded = std::make_unique<state>();
  loaded->key = detail::read_private_pem(pem, detail::ed25519);
  if (loaded->key) return signing_key(std::move(loaded));
  if (detail::read_private_pem(pem, detail::x25519)) {
    return detail::bad_pem("a key that signs, but one for encryption", for_signatures);
  }
  if (detail::read_public_pem(pem, detail::ed25519)) {
    return detail::bad_pem("a secret key, but a public one",
                           "name its other half, the *.pem that `potl keygen` wrote");
  }
  return detail::bad_pem("an unencrypted Ed25519 secret key in PEM form",
                         "`potl keygen` writes one, named *.pem; in C++ signing_key::to_pem()");
}

signature_bytes signing_key::sign(bytes_view message) const {
  if (!state_) {
    throw exception({errc::usage, "this signing key was moved to another object",
                     "sign with the one that it was moved to"});
  }
  const detail::digest_context context(EVP_MD_CTX_new());
  require(context != nullptr, "EVP_MD_CTX_new");
  require(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, state_->key.get()) == 1,
          "EVP_DigestSignInit");
  signature_bytes out{};
  std::size_t size = out.size();
  require(EVP_DigestSign(context.get(), out.data(), &size, message.data(), message.size()) == 1 &&
              size == out.size(),
          "EVP_DigestSign");
  return out;
}

std::string signing_key::to_pem() const { return detail::write_private_pem(state_->key.get()); }

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/signature.hpp>

#include <algorithm>
#include <utility>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/pem.h>

#include <potl/crypto/hasher.hpp>

#include "openssl.hpp"

namespace potl {
namespace {

using detail::key_handle;
using detail::require;
using bio_handle = std::unique_ptr<BIO, detail::openssl_deleter<BIO_free_all>>;

// A key of any kind in PEM is a few kilobytes; Ed25519 keys have less than 200 bytes.
constexpr std::size_t pem_limit = 16 * 1024;

error bad_pem(const char* what, const char* file) {
  ERR_clear_error();
  return {errc::malformed, std::string("this is not ") + what,
          std::string("`potl keygen` writes ") + file};
}

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; });
}

/// Whether `pem` is one block with this label and nothing but white space around it: a key that is
/// hidden behind other text, or the second of two, is not what a reader would expect to be used.
bool is_single_block(std::string_view pem, std::string_view label) {
  const std::string begin = "-----BEGIN " + std::string(label) + "-----";
  const std::string end = "-----END " + std::string(label) + "-----";
  if (pem.size() > pem_limit) return false;
  const std::size_t first = pem.find(begin);
  if (first == std::string_view::npos || !is_blank(pem.substr(0, first))) return false;
  const std::size_t last = pem.find(end, first);
  return last != std::string_view::npos && is_blank(pem.substr(last + end.size()));
}

bio_handle reader_of(std::string_view text) {
  bio_handle bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  require(bio != nullptr, "BIO_new_mem_buf");
  return bio;
}

/// What was written to a memory BIO; the BIO's copy is wiped.
std::string take_text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  require(size > 0, "BIO_get_mem_data");
  std::string text(data, static_cast<std::size_t>(size));
  OPENSSL_cleanse(data, text.size());
  return text;
}

key_handle handle_of(const std::array<std::uint8_t, public_key::size>& raw) {
  key_handle key(
      EVP_PKEY_new_raw_public_key_ex(nullptr, "ED25519", nullptr, raw.data(), raw.size()));
  require(key != nullptr, "EVP_PKEY_new_raw_public_key_ex");
  return key;
}

std::array<std::uint8_t, public_key::size> raw_public(EVP_PKEY* key) {
  std::array<std::uint8_t, public_key::size> raw{};
  std::size_t size = raw.size();
  require(EVP_PKEY_get_raw_public_key(key, raw.data(), &size) == 1 && size == raw.size(),
          "EVP_PKEY_get_raw_public_key");
  return raw;
}

// Without this, OpenSSL would ask for a pass phrase on the terminal.
int no_pass_phrase(char*, int, int, void*) { return 0; }

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
  const error bad = bad_pem("an Ed25519 public key in PEM form", "one, named *.pub");
  if (!is_single_block(pem, "PUBLIC KEY")) return bad;
  const bio_handle bio = reader_of(pem);
  const key_handle key(PEM_read_bio_PUBKEY(bio.get(), nullptr, no_pass_phrase, nullptr));
  ERR_clear_error();
  if (!key || !EVP_PKEY_is_a(key.get(), "ED25519")) return bad;
  return public_key(raw_public(key.get()));
}

std::string public_key::to_pem() const {
  const key_handle key = handle_of(raw_);
  const bio_handle bio(BIO_new(BIO_s_mem()));
  require(bio != nullptr, "BIO_new");
  require(PEM_write_bio_PUBKEY(bio.get(), key.get()) == 1, "PEM_write_bio_PUBKEY");
  return take_text(bio.get());
}

std::string public_key::key_id() const { return sha256_of(raw_).hex(); }

status public_key::verify(bytes_view message, bytes_view signature) const {
  const key_handle key = handle_of(raw_);
  const detail::digest_context context(EVP_MD_CTX_new());
  require(context != nullptr, "EVP_MD_CTX_new");
  require(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1,
          "EVP_DigestVerifyInit");
  const int outcome = EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                                       message.data(), message.size());
  ERR_clear_error();
  if (outcome == 1) return unit{};
  return error{errc::mismatch, "the signature is not by the key " + key_id(), ""};
}

struct signing_key::state {
  key_handle key;
};

signing_key::signing_key(std::unique_ptr<state> loaded)
    : state_(std::move(loaded)), public_(raw_public(state_->key.get())) {}
signing_key::signing_key(signing_key&&) noexcept = default;
signing_key& signing_key::operator=(signing_key&&) noexcept = default;
signing_key::~signing_key() = default;

signing_key signing_key::generate() {
  auto fresh = std::make_unique<state>();
  fresh->key.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  require(fresh->key != nullptr, "EVP_PKEY_Q_keygen");
  return signing_key(std::move(fresh));
}

result<signing_key> signing_key::from_seed(bytes_view seed) {
  if (seed.size() != 32) {
    return error{errc::malformed, "a seed has 32 bytes, not " + std::to_string(seed.size()), ""};
  }
  auto loaded = std::make_unique<state>();
  loaded->key.reset(
      EVP_PKEY_new_raw_private_key_ex(nullptr, "ED25519", nullptr, seed.data(), seed.size()));
  require(loaded->key != nullptr, "EVP_PKEY_new_raw_private_key_ex");
  return signing_key(std::move(loaded));
}

result<signing_key> signing_key::from_pem(std::string_view pem) {
  const error bad = bad_pem("an unencrypted Ed25519 secret key in PEM form", "one, named *.pem");
  if (!is_single_block(pem, "PRIVATE KEY")) return bad;
  const bio_handle bio = reader_of(pem);
  auto loaded = std::make_unique<state>();
  loaded->key.reset(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_pass_phrase, nullptr));
  ERR_clear_error();
  if (!loaded->key || !EVP_PKEY_is_a(loaded->key.get(), "ED25519")) return bad;
  return signing_key(std::move(loaded));
}

signature_bytes signing_key::sign(bytes_view message) const {
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

std::string signing_key::to_pem() const {
  const bio_handle bio(BIO_new(BIO_s_mem()));
  require(bio != nullptr, "BIO_new");
  require(PEM_write_bio_PKCS8PrivateKey(bio.get(), state_->key.get(), nullptr, nullptr, 0, nullptr,
                                        nullptr) == 1,
          "PEM_write_bio_PKCS8PrivateKey");
  return take_text(bio.get());
}

}  // namespace potl

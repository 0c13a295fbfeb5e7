// SPDX-License-Identifier: Apache-2.0
#include "pem.hpp"

#include <algorithm>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/pem.h>

namespace potl::detail {
namespace {

using bio_handle = std::unique_ptr<BIO, openssl_deleter<BIO_free_all>>;

// A key of any kind in PEM is a few kilobytes; those with 32 bytes have less than 200.
constexpr std::size_t pem_limit = 16 * 1024;

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

bio_handle writer() {
  bio_handle bio(BIO_new(BIO_s_mem()));
  require(bio != nullptr, "BIO_new");
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

// Without this, OpenSSL would ask for a pass phrase on the terminal.
int no_pass_phrase(char*, int, int, void*) { return 0; }

key_handle of_kind(key_handle key, const char* kind) {
  ERR_clear_error();
  if (key && !EVP_PKEY_is_a(key.get(), kind)) key.reset();
  return key;
}

}  // namespace

error bad_pem(const std::string& what, const std::string& remedy) {
  return {errc::malformed, "this is not " + what, remedy};
}

key_handle read_public_pem(std::string_view pem, const char* kind) {
  if (!is_single_block(pem, "PUBLIC KEY")) return nullptr;
  const bio_handle bio = reader_of(pem);
  return of_kind(key_handle(PEM_read_bio_PUBKEY(bio.get(), nullptr, no_pass_phrase, nullptr)),
                 kind);
}

key_handle read_private_pem(std::string_view pem, const char* kind) {
  if (!is_single_block(pem, "PRIVATE KEY")) return nullptr;
  const bio_handle bio = reader_of(pem);
  return of_kind(key_handle(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_pass_phrase, nullptr)),
                 kind);
}

std::string write_public_pem(EVP_PKEY* key) {
  const bio_handle bio = writer();
  require(PEM_write_bio_PUBKEY(bio.get(), key) == 1, "PEM_write_bio_PUBKEY");
  return take_text(bio.get());
}

std::string write_private_pem(EVP_PKEY* key) {
  const bio_handle bio = writer();
  require(PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
          "PEM_write_bio_PKCS8PrivateKey");
  return take_text(bio.get());
}

key_handle public_of(const raw_key& raw, const char* kind) {
  key_handle key(EVP_PKEY_new_raw_public_key_ex(nullptr, kind, nullptr, raw.data(), raw.size()));
  require(key != nullptr, "EVP_PKEY_new_raw_public_key_ex");
  return key;
}

raw_key raw_public(EVP_PKEY* key) {
  raw_key raw{};
  std::size_t size = raw.size();
  require(EVP_PKEY_get_raw_public_key(key, raw.data(), &size) == 1 && size == raw.size(),
          "EVP_PKEY_get_raw_public_key");
  return raw;
}

}  // namespace potl::detail

// SPDX-License-Identifier: Apache-2.0
#include "hpke.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include <openssl/crypto.h>

#include <potl/crypto/hasher.hpp>

namespace potl::detail {
namespace {

using bytes = std::vector<std::uint8_t>;
using cipher_context = std::unique_ptr<EVP_CIPHER_CTX, openssl_deleter<EVP_CIPHER_CTX_free>>;

constexpr std::size_t nonce_bytes = 12;
// "KEM" and the KEM's number; "HPKE" and those of KEM, KDF and AEAD.
constexpr std::string_view kem_suite("KEM\x00\x20", 5);
constexpr std::string_view suite("HPKE\x00\x20\x00\x01\x00\x03", 10);

void append(bytes& out, bytes_view more) { out.insert(out.end(), more.begin(), more.end()); }
void append(bytes& out, std::string_view more) { append(out, as_bytes_view(more)); }

void wipe(digest& secret) { OPENSSL_cleanse(secret.bytes.data(), secret.bytes.size()); }

/// HKDF-Extract (RFC 5869) as RFC 9180 labels it.
digest extract(std::string_view of, bytes_view salt, std::string_view label, bytes_view input) {
  bytes labelled;
  labelled.reserve(64 + input.size());  // grown, it would leave secrets behind
  append(labelled, "HPKE-v1");
  append(labelled, of);
  append(labelled, label);
  append(labelled, input);
  const digest out = hmac_sha256(salt, labelled);
  OPENSSL_cleanse(labelled.data(), labelled.size());
  return out;
}

/// HKDF-Expand of at most one digest, which is all that this suite needs: its first round.
digest expand(std::string_view of, const digest& key, std::string_view label, bytes_view info,
              std::size_t size) {
  bytes labelled = {0, static_cast<std::uint8_t>(size)};
  append(labelled, "HPKE-v1");
  append(labelled, of);
  append(labelled, label);
  append(labelled, info);
  labelled.push_back(1);
  return hmac_sha256(bytes_view(key), labelled);
}

/// The shared secret of two keys, one of which is one's own; malformed for a point of small order,
/// which OpenSSL refuses to derive from.
result<digest> exchanged(EVP_PKEY* own, const raw_key& other, const raw_key& encapsulated,
                         const raw_key& receiver) {
  const key_handle peer = public_of(other, x25519);
  const key_context context(EVP_PKEY_CTX_new(own, nullptr));
  require(context != nullptr && EVP_PKEY_derive_init(context.get()) == 1, "EVP_PKEY_derive_init");
  digest shared;
  std::size_t size = shared.bytes.size();
  if (EVP_PKEY_derive_set_peer(context.get(), peer.get()) != 1 ||
      EVP_PKEY_derive(context.get(), shared.bytes.data(), &size) != 1 || size != digest::size) {
    ERR_clear_error();
    return error{errc::malformed, "nothing can be encrypted with this X25519 key", ""};
  }
  bytes both;
  append(both, encapsulated);
  append(both, receiver);
  digest key = extract(kem_suite, {}, "eae_prk", shared);
  const digest secret = expand(kem_suite, key, "shared_secret", both, digest::size);
  wipe(shared);
  wipe(key);
  return secret;
}

}  // namespace

result<hpke_encapsulated> hpke_encapsulate(EVP_PKEY* fresh, const raw_key& receiver) {
  hpke_encapsulated out{{}, raw_public(fresh)};
  const result<digest> secret = exchanged(fresh, receiver, out.key, receiver);
  if (!secret) return secret.why();
  out.secret = *secret;
  return out;
}

result<digest> hpke_decapsulate(EVP_PKEY* receiver, const raw_key& encapsulated) {
  return exchanged(receiver, encapsulated, encapsulated, raw_public(receiver));
}

struct hpke_context::state {
  cipher_context cipher{EVP_CIPHER_CTX_new()};
  digest key;
  digest nonce;  // its first bytes
  std::uint64_t sequence = 0;

  ~state() {
    wipe(key);
    wipe(nonce);
  }

  /// The nonce of the next message.
  std::array<std::uint8_t, nonce_bytes> next() const {
    std::array<std::uint8_t, nonce_bytes> out{};
    std::copy_n(nonce.bytes.begin(), out.size(), out.begin());
    for (std::size_t i = 0; i < sizeof sequence; ++i) {
      out[out.size() - 1 - i] ^= static_cast<std::uint8_t>(sequence >> 8 * i);
    }
    return out;
  }

  void start(bool encrypt, bytes_view associated, std::size_t size) {
    if (size > std::numeric_limits<int>::max() / 2) {
      throw exception({errc::usage, "a message has less than 2^30 bytes", ""});
    }
    require(EVP_CipherInit_ex2(cipher.get(), EVP_chacha20_poly1305(), key.bytes.data(),
                               next().data(), encrypt ? 1 : 0, nullptr) == 1,
            "EVP_CipherInit_ex2");
    update(associated, nullptr);
  }

  /// Nowhere: associated data.
  void update(bytes_view from, std::uint8_t* to) {
    int written = 0;
    if (from.empty()) return;
    require(EVP_CipherUpdate(cipher.get(), to, &written, from.data(),
                             static_cast<int>(from.size())) == 1,
            "EVP_CipherUpdate");
  }

  bool finish() {
    std::array<std::uint8_t, hpke_tag_bytes> none{};
    int written = 0;
    const bool good = EVP_CipherFinal_ex(cipher.get(), none.data(), &written) == 1;
    ERR_clear_error();
    return good;
  }
};

hpke_context::hpke_context(const digest& secret, bytes_view info)
    : state_(std::make_unique<state>()) {
  require(state_->cipher != nullptr, "EVP_CIPHER_CTX_new");
  bytes schedule = {0};  // base mode
  append(schedule, bytes_view(extract(suite, {}, "psk_id_hash", {})));
  append(schedule, bytes_view(extract(suite, {}, "info_hash", info)));
  digest key = extract(suite, secret, "secret", {});
  state_->key = expand(suite, key, "key", schedule, digest::size);
  state_->nonce = expand(suite, key, "base_nonce", schedule, nonce_bytes);
  wipe(key);
}

hpke_context::~hpke_context() = default;
hpke_context::hpke_context(hpke_context&&) noexcept = default;
hpke_context& hpke_context::operator=(hpke_context&&) noexcept = default;

bytes hpke_context::seal(bytes_view associated, bytes_view plain) {
  bytes out(plain.size() + hpke_tag_bytes);
  state_->start(true, associated, plain.size());
  state_->update(plain, out.data());
  require(state_->finish(), "EVP_CipherFinal_ex");
  require(EVP_CIPHER_CTX_ctrl(state_->cipher.get(), EVP_CTRL_AEAD_GET_TAG, hpke_tag_bytes,
                              out.data() + plain.size()) == 1,
          "EVP_CIPHER_CTX_ctrl");
  ++state_->sequence;
  return out;
}

result<bytes> hpke_context::open(bytes_view associated, bytes_view sealed) {
  const error bad{errc::mismatch, "this is not what was encrypted here", ""};
  if (sealed.size() < hpke_tag_bytes) return bad;
  const std::size_t size = sealed.size() - hpke_tag_bytes;
  std::array<std::uint8_t, hpke_tag_bytes> tag{};
  std::copy_n(sealed.begin() + static_cast<std::ptrdiff_t>(size), tag.size(), tag.begin());
  bytes out(size);
  state_->start(false, associated, size);
  state_->update(sealed.first(size), out.data());
  require(EVP_CIPHER_CTX_ctrl(state_->cipher.get(), EVP_CTRL_AEAD_SET_TAG, hpke_tag_bytes,
                              tag.data()) == 1,
          "EVP_CIPHER_CTX_ctrl");
  if (!state_->finish()) {
    OPENSSL_cleanse(out.data(), out.size());
    return bad;
  }
  ++state_->sequence;
  return out;
}

}  // namespace potl::detail

// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/sealing.hpp>

#include <algorithm>
#include <utility>

#include <potl/crypto/hasher.hpp>

#include "hpke.hpp"

namespace potl {
namespace {

using detail::key_handle;
using detail::require;

constexpr const char* for_encryption = "`potl keygen --encryption` writes one";

key_handle fresh_key() {
  key_handle key(EVP_PKEY_Q_keygen(nullptr, nullptr, detail::x25519));
  require(key != nullptr, "EVP_PKEY_Q_keygen");
  return key;
}

result<detail::raw_key> raw_of(bytes_view bytes, const char* what) {
  detail::raw_key raw{};
  if (bytes.size() != raw.size()) {
    return error{errc::malformed,
                 std::string(what) + " has 32 bytes, not " + std::to_string(bytes.size()), ""};
  }
  std::copy(bytes.begin(), bytes.end(), raw.begin());
  return raw;
}

/// The associated data of a frame: none of the last one, so that a stream of one frame is what
/// HPKE's functions for one message give.
bytes_view mark(bool last) {
  static constexpr std::array<std::uint8_t, 1> more_follows{1};
  return last ? bytes_view() : bytes_view(more_follows);
}

void require_more(bool ended) {
  if (ended) throw exception({errc::usage, "nothing follows the last frame", ""});
}

}  // namespace

result<sealing_key> sealing_key::from_raw(bytes_view bytes) {
  const result<detail::raw_key> raw = raw_of(bytes, "an X25519 public key");
  if (!raw) return raw.why();
  // Better now than with the first answer.
  const auto tried = detail::hpke_encapsulate(fresh_key().get(), *raw);
  if (!tried) return tried.why();
  return sealing_key(*raw);
}

result<sealing_key> sealing_key::from_pem(std::string_view pem) {
  const key_handle key = detail::read_public_pem(pem, detail::x25519);
  if (key) return from_raw(detail::raw_public(key.get()));
  if (detail::read_public_pem(pem, detail::ed25519)) {
    return detail::bad_pem("a key for encryption, but one for signatures", for_encryption);
  }
  if (detail::read_private_pem(pem, detail::x25519)) {
    return detail::bad_pem("a public key, but a secret one",
                           "name its other half, the *.pub that `potl keygen --encryption` wrote");
  }
  return detail::bad_pem("an X25519 public key in PEM form", for_encryption);
}

std::string sealing_key::to_pem() const {
  return detail::write_public_pem(detail::public_of(raw_, detail::x25519).get());
}

std::string sealing_key::key_id() const { return sha256_of(raw_).hex(); }

struct opening_key::state {
  key_handle key;
};

opening_key::opening_key(std::unique_ptr<state> loaded)
    : state_(std::move(loaded)), public_(detail::raw_public(state_->key.get())) {}
opening_key::opening_key(opening_key&&) noexcept = default;
opening_key& opening_key::operator=(opening_key&&) noexcept = default;
opening_key::~opening_key() = default;

opening_key opening_key::generate() {
  auto fresh = std::make_unique<state>();
  fresh->key = fresh_key();
  return opening_key(std::move(fresh));
}

result<opening_key> opening_key::from_pem(std::string_view pem) {
  auto loaded = std::make_unique<state>();
  loaded->key = detail::read_private_pem(pem, detail::x25519);
  if (loaded->key) return opening_key(std::move(loaded));
  if (detail::read_private_pem(pem, detail::ed25519)) {
    return detail::bad_pem("a key that decrypts, but one that signs", for_encryption);
  }
  if (detail::read_public_pem(pem, detail::x25519)) {
    return detail::bad_pem("a secret key, but a public one",
                           "name its other half, the *.pem that `potl keygen --encryption` wrote");
  }
  return detail::bad_pem("an unencrypted X25519 secret key in PEM form", for_encryption);
}

std::string opening_key::to_pem() const { return detail::write_private_pem(state_->key.get()); }

struct frame_sealer::state {
  detail::hpke_context context;
  bool ended = false;
};

frame_sealer::frame_sealer(const sealing_key& key, bytes_view info) {
  const auto shared = detail::hpke_encapsulate(fresh_key().get(), key.raw()).value();
  head_ = shared.key;
  state_ = std::make_unique<state>(state{detail::hpke_context(shared.secret, info)});
}
frame_sealer::~frame_sealer() = default;
frame_sealer::frame_sealer(frame_sealer&&) noexcept = default;
frame_sealer& frame_sealer::operator=(frame_sealer&&) noexcept = default;

std::vector<std::uint8_t> frame_sealer::seal(bytes_view plain, bool last) {
  require_more(state_->ended);
  state_->ended = last;
  return state_->context.seal(mark(last), plain);
}

struct frame_opener::state {
  detail::hpke_context context;
  bool ended = false;
};

frame_opener::frame_opener(std::unique_ptr<state> begun) : state_(std::move(begun)) {}
frame_opener::~frame_opener() = default;
frame_opener::frame_opener(frame_opener&&) noexcept = default;
frame_opener& frame_opener::operator=(frame_opener&&) noexcept = default;

result<frame_opener> frame_opener::begin(const opening_key& key, bytes_view head, bytes_view info) {
  const result<detail::raw_key> raw = raw_of(head, "the head of what is encrypted");
  if (!raw) return raw.why();
  const result<digest> secret = detail::hpke_decapsulate(key.state_->key.get(), *raw);
  if (!secret) return secret.why();
  return frame_opener(std::make_unique<state>(state{detail::hpke_context(*secret, info)}));
}

result<std::vector<std::uint8_t>> frame_opener::open(bytes_view sealed, bool last) {
  require_more(state_->ended);
  auto plain = state_->context.open(mark(last), sealed);
  if (plain) state_->ended = last;
  return plain;
}

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
// RFC 9180 in base mode with one suite: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

#include "pem.hpp"

namespace potl::detail {

inline constexpr std::size_t hpke_tag_bytes = 16;

/// Messages of one direction under the keys of one exchange. Either side has one.
class hpke_context {
 public:
  /// `secret` is the shared secret of the exchange.
  hpke_context(const digest& secret, bytes_view info);
  ~hpke_context();
  hpke_context(hpke_context&&) noexcept;
  hpke_context& operator=(hpke_context&&) noexcept;

  /// The next message, encrypted, and its tag.
  std::vector<std::uint8_t> seal(bytes_view associated, bytes_view plain);
  /// The same back. mismatch unless it is the next message as it was sealed; then this stays as it
  /// was, and nothing of what was decrypted is left.
  result<std::vector<std::uint8_t>> open(bytes_view associated, bytes_view sealed);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// A shared secret, and what makes it again for who has the receiver's key.
struct hpke_encapsulated {
  digest secret;
  raw_key key;
};

/// `fresh` is a key pair of this exchange alone. malformed for a receiver whose key is a point of
/// small order.
result<hpke_encapsulated> hpke_encapsulate(EVP_PKEY* fresh, const raw_key& receiver);
result<digest> hpke_decapsulate(EVP_PKEY* receiver, const raw_key& encapsulated);

}  // namespace potl::detail

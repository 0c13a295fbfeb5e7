// SPDX-License-Identifier: Apache-2.0
// SHA-256, SHA-512 and HMAC (FIPS 180-4, FIPS 198-1), computed by OpenSSL behind small types.
//
// Cost: one OpenSSL call per update; the algorithm is looked up once per process and contexts are
// reused, so that a short message costs little more than its compression. Nothing here allocates
// after construction. All functions throw potl::exception (errc::internal) when OpenSSL itself
// fails, which happens when it is out of memory or when SHA-256 is disabled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl {

class file_pieces;

/// Incremental SHA-256. After finish() the object is ready for the next message.
class sha256 {
 public:
  sha256();
  ~sha256();
  sha256(sha256&&) noexcept;
  sha256& operator=(sha256&&) noexcept;

  sha256& update(bytes_view bytes);
  /// The digest of everything since the last finish() or reset().
  digest finish();
  /// Forgets what was given since the last finish().
  void reset();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

namespace detail {
digest sha256_of_parts(std::span<const bytes_view> parts);
}  // namespace detail

/// SHA-256 of a file, which is read in pieces of 4 MiB. io: also when it was written to meanwhile.
result<digest> sha256_of_file(const file_pieces& file);

/// SHA-256 of the concatenation of its arguments. The parts are not delimited: a caller who mixes
/// parts of variable length adds their lengths.
template <class... Parts>
digest sha256_of(const Parts&... parts) {
  const std::array<bytes_view, sizeof...(Parts)> views{bytes_view(parts)...};
  return detail::sha256_of_parts(views);
}

/// 64 bytes.
using sha512_digest = std::array<std::uint8_t, 64>;
/// SHA-512.
sha512_digest sha512_of(bytes_view bytes);

/// HMAC-SHA-256 under one key for many messages. The key is held by OpenSSL and wiped at the end.
class hmac_sha256_key {
 public:
  explicit hmac_sha256_key(bytes_view key);
  ~hmac_sha256_key();
  hmac_sha256_key(hmac_sha256_key&&) noexcept;
  hmac_sha256_key& operator=(hmac_sha256_key&&) noexcept;

  /// Goes on with another key: cheaper than another object, which OpenSSL would have to set up.
  void rekey(bytes_view key);
  /// The authentication code of `message`.
  digest of(bytes_view message);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// HMAC of one message.
digest hmac_sha256(bytes_view key, bytes_view message);
/// HMAC of one message, with SHA-512.
sha512_digest hmac_sha512(bytes_view key, bytes_view message);

/// Equality whose time depends on the lengths alone. Use it wherever one side is a secret.
bool equal_constant_time(bytes_view a, bytes_view b) noexcept;

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
// Encryption to the holder of an X25519 key, and to nobody else: RFC 9180 in base mode with
// DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305.
//
// Claims: without the secret key nothing is learnt of what was sealed but its size. What opens is,
// in this order and under this `info`, what somebody sealed, and frames that are left out,
// repeated, exchanged or altered do not open. Cannot detect: who sealed it, because the public key
// is all that it takes; a stolen secret key, which also opens what was sealed before. Cost: two
// multiplications on the curve for each stream, 16 bytes for each frame.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl {

/// An X25519 public key: what is sealed to it opens with its secret half.
class sealing_key {
 public:
  static constexpr std::size_t size = 32;

  /// malformed unless there are 32 bytes to which something can be encrypted.
  static result<sealing_key> from_raw(bytes_view raw);
  /// A PEM block "PUBLIC KEY" (SubjectPublicKeyInfo, RFC 8410) and nothing else around it.
  static result<sealing_key> from_pem(std::string_view pem);

  const std::array<std::uint8_t, size>& raw() const noexcept { return raw_; }
  std::string to_pem() const;
  /// Hexadecimal SHA-256 of the raw key.
  std::string key_id() const;

  friend bool operator==(const sealing_key&, const sealing_key&) = default;

 private:
  explicit sealing_key(const std::array<std::uint8_t, size>& raw) : raw_(raw) {}
  friend class opening_key;
  std::array<std::uint8_t, size> raw_;
};

/// The secret half. Movable, not copyable, so that there is one place to wipe.
class opening_key {
 public:
  static opening_key generate();
  /// A PEM block "PRIVATE KEY" (PKCS#8, RFC 8410), not encrypted.
  static result<opening_key> from_pem(std::string_view pem);

  opening_key(opening_key&&) noexcept;
  opening_key& operator=(opening_key&&) noexcept;
  ~opening_key();

  const sealing_key& sealer() const noexcept { return public_; }
  /// The PKCS#8 PEM block. Whoever holds it can open.
  std::string to_pem() const;

 private:
  struct state;
  friend class frame_opener;
  explicit opening_key(std::unique_ptr<state> loaded);
  std::unique_ptr<state> state_;
  sealing_key public_;
};

/// What a frame is longer than what was sealed in it.
inline constexpr std::size_t sealed_frame_extra = 16;

/// A stream of frames to one key. `info` is what both sides know of it; it is bound, and not sent.
class frame_sealer {
 public:
  frame_sealer(const sealing_key& key, bytes_view info);
  ~frame_sealer();
  frame_sealer(frame_sealer&&) noexcept;
  frame_sealer& operator=(frame_sealer&&) noexcept;

  /// What the opener needs first.
  const std::array<std::uint8_t, sealing_key::size>& head() const noexcept { return head_; }
  /// The next frame. A stream ends with one that is its last: a stream that was cut has none. usage
  /// after it.
  std::vector<std::uint8_t> seal(bytes_view plain, bool last);

 private:
  struct state;
  std::unique_ptr<state> state_;
  std::array<std::uint8_t, sealing_key::size> head_;
};

/// The same stream, as the holder of the secret key reads it.
class frame_opener {
 public:
  /// malformed if `head` is not a sealer's.
  static result<frame_opener> begin(const opening_key& key, bytes_view head, bytes_view info);
  ~frame_opener();
  frame_opener(frame_opener&&) noexcept;
  frame_opener& operator=(frame_opener&&) noexcept;

  /// What was sealed in the next frame; mismatch if this is not that frame. usage after the last.
  result<std::vector<std::uint8_t>> open(bytes_view sealed, bool last);

 private:
  struct state;
  explicit frame_opener(std::unique_ptr<state> begun);
  std::unique_ptr<state> state_;
};

}  // namespace potl

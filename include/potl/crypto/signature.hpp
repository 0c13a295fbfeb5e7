// SPDX-License-Identifier: Apache-2.0
// Ed25519 signatures (RFC 8032) and their keys in the PEM forms that other tools read.
//
// Claims: a signature that verifies was made by the holder of the secret key, for exactly these
// bytes. Cannot detect: a stolen key. Secret bytes are wiped by OpenSSL, and by this code where it
// holds them. Signatures have one valid form: malleable ones (S not reduced) do not verify.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>

namespace potl {

/// An Ed25519 signature.
using signature_bytes = std::array<std::uint8_t, 64>;

/// An Ed25519 public key.
class public_key {
 public:
  static constexpr std::size_t size = 32;

  /// malformed unless there are 32 bytes.
  static result<public_key> from_raw(bytes_view raw);
  /// A PEM block "PUBLIC KEY" (SubjectPublicKeyInfo, RFC 8410) and nothing else around it.
  static result<public_key> from_pem(std::string_view pem);

  const std::array<std::uint8_t, size>& raw() const noexcept { return raw_; }
  std::string to_pem() const;
  /// The raw key in hexadecimal: how jobs, commands and reports show it.
  std::string hex() const;
  /// mismatch unless `signature` is this key's signature of `message`.
  status verify(bytes_view message, bytes_view signature) const;

  friend bool operator==(const public_key&, const public_key&) = default;

 private:
  explicit public_key(const std::array<std::uint8_t, size>& raw) : raw_(raw) {}
  friend class signing_key;
  std::array<std::uint8_t, size> raw_;
};

/// A secret key. Movable, not copyable, so that there is one place to wipe.
class signing_key {
 public:
  static signing_key generate();
  /// The key of an RFC 8032 seed; malformed unless there are 32 bytes. The caller wipes the seed.
  static result<signing_key> from_seed(bytes_view seed);
  /// A PEM block "PRIVATE KEY" (PKCS#8, RFC 8410), not encrypted.
  static result<signing_key> from_pem(std::string_view pem);

  signing_key(signing_key&&) noexcept;
  signing_key& operator=(signing_key&&) noexcept;
  ~signing_key();

  const public_key& verifier() const noexcept { return public_; }
  signature_bytes sign(bytes_view message) const;
  /// The PKCS#8 PEM block. Whoever holds it can sign.
  std::string to_pem() const;

 private:
  struct state;
  explicit signing_key(std::unique_ptr<state> loaded);
  std::unique_ptr<state> state_;
  public_key public_;
};

}  // namespace potl

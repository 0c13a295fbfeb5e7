// SPDX-License-Identifier: Apache-2.0
// Keys of one kind, each in a PEM block of its own and nothing around it. Kinds are OpenSSL's
// names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "openssl.hpp"

namespace potl::detail {

inline constexpr const char* ed25519 = "ED25519";
inline constexpr const char* x25519 = "X25519";

/// 32 bytes of a key.
using raw_key = std::array<std::uint8_t, 32>;

/// Why a text is no such key, and what writes one.
error bad_pem(const std::string& what, const std::string& remedy);

/// The key of a block "PUBLIC KEY"; null unless it is of this kind.
key_handle read_public_pem(std::string_view pem, const char* kind);
/// The key of a block "PRIVATE KEY", not encrypted; null unless it is of this kind.
key_handle read_private_pem(std::string_view pem, const char* kind);
std::string write_public_pem(EVP_PKEY* key);
std::string write_private_pem(EVP_PKEY* key);

key_handle public_of(const raw_key& raw, const char* kind);
/// The bytes of the public half.
raw_key raw_public(EVP_PKEY* key);

}  // namespace potl::detail

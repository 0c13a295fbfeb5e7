// SPDX-License-Identifier: Apache-2.0
// A SHA-256 value as a type of its own, so that it is not confused with other 32 bytes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <potl/core/result.hpp>

namespace potl {

/// Bytes that somebody else owns.
using bytes_view = std::span<const std::uint8_t>;

/// The bytes of a text.
inline bytes_view as_bytes_view(std::string_view text) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// A SHA-256.
struct digest {
  static constexpr std::size_t size = 32;
  std::array<std::uint8_t, size> bytes{};

  friend bool operator==(const digest&, const digest&) = default;
  friend auto operator<=>(const digest&, const digest&) = default;
  operator bytes_view() const noexcept {
    return {bytes.data(), bytes.size()};
  }  // NOLINT: a digest is bytes

  /// 64 lower-case hexadecimal digits.
  std::string hex() const;
  /// Inverse of hex(); malformed unless exactly 64 lower-case hexadecimal digits.
  static result<digest> from_hex(std::string_view text);
};

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
// Integers as bytes, for what is hashed: the same on every machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace potl::detail {

constexpr std::array<std::uint8_t, 8> little_endian(std::uint64_t value) noexcept {
  std::array<std::uint8_t, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(value >> 8 * i);
  }
  return bytes;
}

constexpr std::uint64_t from_little_endian(const std::uint8_t* bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= std::uint64_t{bytes[i]} << 8 * i;
  return value;
}

}  // namespace potl::detail

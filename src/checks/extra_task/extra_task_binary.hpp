// SPDX-License-Identifier: Apache-2.0
// Numbers as bytes that are hashed: the same on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace potl::checks {

inline std::array<std::uint8_t, 8> little_endian_bytes(std::uint64_t value) noexcept {
  std::array<std::uint8_t, 8> out{};
  for (unsigned byte = 0; byte < 8; ++byte) {
    out[byte] = static_cast<std::uint8_t>(value >> (8 * byte));
  }
  return out;
}

/// The bits of a double; every NaN counts as one, and -0 as 0.
inline std::uint64_t bits_of(double value) noexcept {
  if (value != value) return 0x7ff8000000000000u;
  if (value == 0) return 0;
  std::uint64_t out = 0;
  std::memcpy(&out, &value, sizeof out);
  return out;
}

}  // namespace potl::checks

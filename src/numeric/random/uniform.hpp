// SPDX-License-Identifier: Apache-2.0
// Uniform numbers of 64 random bits, and what all fills refuse in one way.
#pragma once

#include <cstdint>
#include <string>

#include <potl/core/error.hpp>

namespace potl::randoms {

/// A multiple of 2^-53 in [0, 1).
inline double half_open(std::uint64_t bits) noexcept {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

/// An odd multiple of 2^-53: in (0, 1), and symmetric about 1/2.
inline double open(std::uint64_t bits) noexcept {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

inline void check(bool fits, const char* what) {
  if (!fits) throw exception({errc::usage, std::string("random fill: ") + what, ""});
}

}  // namespace potl::randoms

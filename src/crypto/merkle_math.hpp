// SPDX-License-Identifier: Apache-2.0
// Shapes of RFC 6962 trees, shared by the prover's and the verifier's half.
#pragma once

#include <bit>
#include <cstdint>

namespace potl::detail {

/// The largest power of two below `size`: where the root divides its leaves. Needs size >= 2.
constexpr std::uint64_t split(std::uint64_t size) noexcept { return std::bit_floor(size - 1); }

}  // namespace potl::detail

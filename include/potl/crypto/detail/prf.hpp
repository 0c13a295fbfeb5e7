// SPDX-License-Identifier: Apache-2.0
// Randomness that the job fixes: a 64-bit seed and the name of a purpose give a key, and a key
// gives a sequence. Everyone who has the job computes the same values, so they never have to be
// recorded. Nothing here is secret; challenges are drawn with crypto/challenge.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <potl/core/detail/rng.hpp>
#include <potl/core/digest.hpp>

namespace potl {

/// SHA-256("potl.prf.v1" 0x00 || seed || len(label) || label || count || indices), integers as
/// 64-bit little-endian. Different arguments have different keys (collision resistance).
digest derive_key(std::uint64_t seed, std::string_view label,
                  std::span<const std::uint64_t> indices = {});

/// derive_key(seed, "dropout", {step, micro_batch, draw}) and the like.
inline digest derive_key(std::uint64_t seed, std::string_view label,
                         std::initializer_list<std::uint64_t> indices) {
  return derive_key(seed, label, std::span<const std::uint64_t>(indices.begin(), indices.size()));
}

/// The first 16 bytes of a derived key, as two little-endian integers.
random_key to_random_key(const digest& key) noexcept;

/// A uniformly random permutation of 0 .. count-1 (Fisher-Yates from the last element down; the
/// position that element i changes places with is random_below(key, i, i + 1)). Throws usage when
/// count exceeds 2^40.
std::vector<std::int64_t> permutation(const digest& key, std::uint64_t count);

/// The same, in memory of the caller.
void fill_permutation(random_key key, std::span<std::int64_t> out);

}  // namespace potl

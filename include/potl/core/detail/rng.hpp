// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC11):
// a random block is a function of a key and a counter, so element i of a sequence can be computed
// alone, on any machine, by integer operations. Statistically strong, not cryptographic: what an
// opponent must not predict is drawn with keyed_stream (crypto/challenge.hpp).
#pragma once

#include <array>
#include <cstdint>

namespace potl {

using philox_block = std::array<std::uint32_t, 4>;

constexpr philox_block philox4x32(philox_block counter, std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// 128 key bits: 64 choose the Philox key, 64 the upper half of its counter.
struct random_key {
  std::uint64_t key = 0;
  std::uint64_t stream = 0;
  friend bool operator==(const random_key&, const random_key&) = default;
};

/// Two independent 64-bit values for (key, index).
constexpr std::array<std::uint64_t, 2> random_pair(random_key key, std::uint64_t index) noexcept {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const philox_block block = philox4x32(
      {low(index), high(index), low(key.stream), high(key.stream)}, {low(key.key), high(key.key)});
  return {std::uint64_t{block[1]} << 32 | block[0], std::uint64_t{block[3]} << 32 | block[2]};
}

/// Element `index` of the sequence of 64-bit values under `key`.
constexpr std::uint64_t random_bits(random_key key, std::uint64_t index) noexcept {
  return random_pair(key, index / 2)[index % 2];
}

/// x % bound when that has no modulo bias. `next` yields independent uniform 64-bit values and is
/// called until one is accepted (less than twice on average). Precondition: bound >= 1.
template <class Next>
constexpr std::uint64_t uniform_below(std::uint64_t bound, Next next) {
  for (;;) {
    const std::uint64_t bits = next();
    // 2^64 mod bound values at the top would make small remainders more likely. They are fewer
    // than `bound`, so that nearly always no division is needed to see that this is none of them.
    if (bits <= ~std::uint64_t{0} - bound) return bits % bound;
    const std::uint64_t excess = (~std::uint64_t{0} % bound + 1) % bound;
    if (bits <= ~std::uint64_t{0} - excess) return bits % bound;
  }
}

/// Element `index` of the sequence of integers below `bound` under `key`; a function of both alone.
/// A rejected value is replaced from another stream, so that other elements do not move.
constexpr std::uint64_t random_below(random_key key, std::uint64_t index,
                                     std::uint64_t bound) noexcept {
  std::uint64_t attempt = 0;
  return uniform_below(bound, [&] {
    const random_key stream{key.key, key.stream + attempt / 2};
    return random_pair(stream, index)[attempt++ % 2];
  });
}

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
// Challenges: which indices a verifier wants to see, drawn from a nonce and the commitment.
//
// Claims: whoever learns the nonce only after the commitment is fixed cannot predict the indices
// (HMAC-SHA-256 as a pseudo-random function keyed by the nonce), every index is equally likely (no
// modulo bias), and nobody who knows the nonce can draw again and get something else.
// Assumes that the nonce is fresh: a verifier who lets the prover choose it proves nothing.
// Cost: one HMAC per four values; memory proportional to the number of indices drawn, not to the
// population.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/result.hpp>
#include <potl/crypto/hasher.hpp>

namespace potl {

/// 32 bytes from the operating system's generator (OpenSSL RAND_bytes); throws when it fails.
digest fresh_nonce();

/// HMAC(nonce, "potl.challenge.v1" 0x00 || commitment || label): the seed of one draw. `label`
/// keeps apart what different checks draw from one nonce.
digest challenge_seed(const digest& nonce, const digest& commitment, std::string_view label);

/// Pseudo-random 64-bit values: HMAC(key, counter) in counter mode, both little-endian.
class keyed_stream {
 public:
  explicit keyed_stream(bytes_view key) : key_(key) {}

  /// The beginning of the stream of another key.
  void restart(bytes_view key) {
    key_.rekey(key);
    counter_ = 0;
    used_ = 4;
  }

  std::uint64_t next();
  /// A uniform value below `bound`, without modulo bias. Throws usage when bound is 0.
  std::uint64_t below(std::uint64_t bound);
  /// A uniform multiple of 2^-53 in [0, 1).
  double unit_interval();

 private:
  hmac_sha256_key key_;
  digest block_;
  std::uint64_t counter_ = 0;
  unsigned used_ = 4;
};

/// The most indices that one draw may ask for.
inline constexpr std::uint64_t draw_limit = std::uint64_t{1} << 26;

/// `count` different indices below `population` in the order in which they were drawn: each ordered
/// selection is equally likely. usage when count > population, limit when count > draw_limit.
result<std::vector<std::uint64_t>> draw_without_replacement(const digest& seed,
                                                            std::uint64_t population,
                                                            std::uint64_t count);

/// The same indices in ascending order.
result<std::vector<std::uint64_t>> draw_sorted(const digest& seed, std::uint64_t population,
                                               std::uint64_t count);

}  // namespace potl

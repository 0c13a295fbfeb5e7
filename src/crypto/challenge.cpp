// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/challenge.hpp>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include <openssl/rand.h>

#include <potl/core/detail/rng.hpp>

#include "little_endian.hpp"
#include "openssl.hpp"

namespace potl {

digest fresh_nonce() {
  digest nonce;
  detail::require(RAND_bytes(nonce.bytes.data(), static_cast<int>(digest::size)) == 1,
                  "RAND_bytes");
  return nonce;
}

digest challenge_seed(const digest& nonce, const digest& commitment, std::string_view label) {
  std::string message("potl.challenge.v1\0", 18);
  message.append(commitment.bytes.begin(), commitment.bytes.end());
  message.append(label);
  return hmac_sha256(nonce, as_bytes_view(message));
}

std::uint64_t keyed_stream::next() {
  if (used_ == 4) {
    block_ = key_.of(detail::little_endian(counter_++));
    used_ = 0;
  }
  return detail::from_little_endian(&block_.bytes[8 * used_++]);
}

std::uint64_t keyed_stream::below(std::uint64_t bound) {
  if (bound == 0) throw exception({errc::usage, "no integer is below 0", ""});
  return uniform_below(bound, [this] { return next(); });
}

double keyed_stream::unit_interval() { return static_cast<double>(next() >> 11) * 0x1p-53; }

result<std::vector<std::uint64_t>> draw_without_replacement(const digest& seed,
                                                            std::uint64_t population,
                                                            std::uint64_t count) {
  if (count > population) {
    return error{errc::usage,
                 "cannot draw " + std::to_string(count) + " of " + std::to_string(population), ""};
  }
  if (count > draw_limit) {
    return error{errc::limit, "at most " + std::to_string(draw_limit) + " indices are drawn", ""};
  }
  // Fisher-Yates from the front on an array 0 .. population-1 of which only changed places exist.
  keyed_stream stream(seed);
  std::unordered_map<std::uint64_t, std::uint64_t> changed;
  changed.reserve(static_cast<std::size_t>(count));
  const auto at = [&](std::uint64_t place) {
    const auto found = changed.find(place);
    return found == changed.end() ? place : found->second;
  };
  std::vector<std::uint64_t> drawn;
  drawn.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t place = i + stream.below(population - i);
    drawn.push_back(at(place));
    changed[place] = at(i);
  }
  return drawn;
}

result<std::vector<std::uint64_t>> draw_sorted(const digest& seed, std::uint64_t population,
                                               std::uint64_t count) {
  auto drawn = draw_without_replacement(seed, population, count);
  if (drawn) std::sort(drawn->begin(), drawn->end());
  return drawn;
}

}  // namespace potl

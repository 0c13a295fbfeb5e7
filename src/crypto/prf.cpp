// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/detail/prf.hpp>

#include <utility>

#include <potl/core/error.hpp>
#include <potl/crypto/hasher.hpp>

#include "little_endian.hpp"

namespace potl {

digest derive_key(std::uint64_t seed, std::string_view label,
                  std::span<const std::uint64_t> indices) {
  using detail::little_endian;
  sha256 hasher;
  hasher.update(as_bytes_view(std::string_view("potl.prf.v1\0", 12)))
      .update(little_endian(seed))
      .update(little_endian(label.size()))
      .update(as_bytes_view(label))
      .update(little_endian(indices.size()));
  for (std::uint64_t index : indices) hasher.update(little_endian(index));
  return hasher.finish();
}

random_key to_random_key(const digest& key) noexcept {
  return {detail::from_little_endian(&key.bytes[0]), detail::from_little_endian(&key.bytes[8])};
}

std::vector<std::int64_t> permutation(const digest& key, std::uint64_t count) {
  if (count > std::uint64_t{1} << 40) {
    throw exception({errc::usage, "a permutation has at most 2^40 elements", ""});
  }
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  fill_permutation(to_random_key(key), out);
  return out;
}

void fill_permutation(random_key key, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::int64_t>(i);
  for (std::size_t i = out.size(); i-- > 1;) {
    std::swap(out[i], out[static_cast<std::size_t>(random_below(key, i, i + 1))]);
  }
}

}  // namespace potl

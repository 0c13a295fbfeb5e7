// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 over lanes of 64 bits; one copy for each instruction set. A 32-bit word of the
// state is the lower half of a lane; what is in the upper half is never used.
#pragma once

#include <cstring>

#include "../../statistics/quantile_centre.hpp"
#include "../elementwise/lanes.hpp"
#include "words.hpp"

namespace potl::randoms {
namespace {

template <class V>
struct state {
  V a, b, c, d;
};

template <class V>
inline void next(state<V>& s, V key0, V key1) {
  const V low = V::multiply(s.a, V::all(0xD2511F53u));
  const V high = V::multiply(s.c, V::all(0xCD9E8D57u));
  s = {V::exclusive(high.upper(), s.b, key0), high, V::exclusive(low.upper(), s.d, key1), low};
}

template <class V>
void words(std::uint64_t key, std::uint64_t stream, std::uint64_t first, std::size_t pairs,
           std::uint64_t* out) {
  // So many independent chains of multiplications keep the units busy.
  constexpr std::size_t together = V::together;
  state<V> s[together];
  for (std::size_t done = 0; done < pairs; done += together * V::lanes) {
    for (std::size_t i = 0; i < together; ++i) {
      const V index = V::counting(first + done + i * V::lanes);
      s[i] = {index, index.upper(), V::all(stream), V::all(stream >> 32)};
    }
    std::uint64_t key0 = key, key1 = key >> 32;
    for (int round = 0; round < 10; ++round) {
      const V k0 = V::all(key0), k1 = V::all(key1);
      for (std::size_t i = 0; i < together; ++i) next(s[i], k0, k1);
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    for (std::size_t i = 0; i < together; ++i)
      V::store_pairs(V::joined(s[i].b, s[i].a), V::joined(s[i].d, s[i].c),
                     out + 2 * (done + i * V::lanes));
  }
}

template <class R>
void centre(const std::uint64_t* words, std::size_t count, double* out) {
  for (std::size_t i = 0; i < count; i += R::lanes) {
    double raw[R::lanes];
    std::memcpy(raw, words + i, sizeof raw);
    // 2^52 + n has the integer n in its lowest bits.
    const R shifted(0x1p52);
    const R integer =
        bit_or(numeric::elementwise::shift_right<12>(R::load(raw)), shifted) - shifted;
    quantiles::centre((integer + R(0.5)) * R(0x1p-52) - R(0.5)).store(out + i);
  }
}

}  // namespace
}  // namespace potl::randoms

// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX512F__)
#include <immintrin.h>

#include "../elementwise/lanes_avx512.hpp"
#include "words_body.hpp"

namespace potl::randoms {
namespace {

struct zmm {
  __m512i v;
  static constexpr std::size_t lanes = 8;
  static constexpr std::size_t together = 4;
  static zmm all(std::uint64_t x) { return {_mm512_set1_epi64(static_cast<long long>(x))}; }
  static zmm counting(std::uint64_t x) {
    return {_mm512_add_epi64(all(x).v, _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7))};
  }
  static zmm multiply(zmm x, zmm y) { return {_mm512_mul_epu32(x.v, y.v)}; }
  static zmm exclusive(zmm x, zmm y, zmm z) {
    return {_mm512_ternarylogic_epi64(x.v, y.v, z.v, 0x96)};
  }
  zmm upper() const { return {_mm512_srli_epi64(v, 32)}; }
  static zmm joined(zmm upper, zmm lower) {
    return {_mm512_mask_blend_epi32(0xAAAA, lower.v, _mm512_slli_epi64(upper.v, 32))};
  }
  static void store_pairs(zmm even, zmm odd, std::uint64_t* to) {
    const __m512i first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(even.v, first, odd.v));
    _mm512_storeu_si512(to + 8, _mm512_permutex2var_epi64(even.v, second, odd.v));
  }
};

void below(const std::uint64_t* words, std::size_t count, std::uint64_t limit, float* out) {
  const __m512i bound = zmm::all(limit).v;
  const auto mask = [&](const std::uint64_t* from) {
    return static_cast<unsigned>(_mm512_cmplt_epu64_mask(_mm512_loadu_si512(from), bound));
  };
  for (std::size_t i = 0; i < count; i += 16) {
    const auto both = static_cast<__mmask16>(mask(words + i) | mask(words + i + 8) << 8);
    _mm512_storeu_ps(out + i, _mm512_maskz_mov_ps(both, _mm512_set1_ps(1.0F)));
  }
}

}  // namespace

const kernels& avx512_kernels() noexcept {
  static constexpr kernels all{&words<zmm>, &below, &centre<numeric::elementwise::f64x8>};
  return all;
}

}  // namespace potl::randoms
#endif

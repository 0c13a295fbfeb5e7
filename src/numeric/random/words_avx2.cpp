// SPDX-License-Identifier: Apache-2.0
#if defined(__AVX2__)
#include <immintrin.h>

#include "../elementwise/lanes_avx2.hpp"
#include "words_body.hpp"

namespace potl::randoms {
namespace {

struct ymm {
  __m256i v;
  static constexpr std::size_t lanes = 4;
  static constexpr std::size_t together = 2;
  static ymm all(std::uint64_t x) { return {_mm256_set1_epi64x(static_cast<long long>(x))}; }
  static ymm counting(std::uint64_t x) {
    return {_mm256_add_epi64(all(x).v, _mm256_setr_epi64x(0, 1, 2, 3))};
  }
  static ymm multiply(ymm x, ymm y) { return {_mm256_mul_epu32(x.v, y.v)}; }
  static ymm exclusive(ymm x, ymm y, ymm z) {
    return {_mm256_xor_si256(_mm256_xor_si256(x.v, y.v), z.v)};
  }
  ymm upper() const { return {_mm256_srli_epi64(v, 32)}; }
  static ymm joined(ymm upper, ymm lower) {
    return {_mm256_blend_epi32(lower.v, _mm256_slli_epi64(upper.v, 32), 0xAA)};
  }
  static void store_pairs(ymm even, ymm odd, std::uint64_t* to) {
    const __m256i low = _mm256_unpacklo_epi64(even.v, odd.v);
    const __m256i high = _mm256_unpackhi_epi64(even.v, odd.v);
    auto* into = reinterpret_cast<__m256i*>(to);
    _mm256_storeu_si256(into, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256(into + 1, _mm256_permute2x128_si256(low, high, 0x31));
  }
};

void below(const std::uint64_t* words, std::size_t count, std::uint64_t limit, float* out) {
  // Comparisons are signed here.
  const __m256i sign = ymm::all(std::uint64_t{1} << 63).v;
  const __m256i bound = _mm256_xor_si256(ymm::all(limit).v, sign);
  const auto mask = [&](const std::uint64_t* from) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi64(bound, _mm256_xor_si256(x, sign)));
  };
  const __m256 one = _mm256_set1_ps(1.0F);
  for (std::size_t i = 0; i < count; i += 8) {
    const __m256 mixed = _mm256_shuffle_ps(mask(words + i), mask(words + i + 4), 0x88);
    const __m256d ordered = _mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xD8);
    _mm256_storeu_ps(out + i, _mm256_and_ps(_mm256_castpd_ps(ordered), one));
  }
}

}  // namespace

const kernels& avx2_kernels() noexcept {
  static constexpr kernels all{&words<ymm>, &below, &centre<numeric::elementwise::f64x4>};
  return all;
}

}  // namespace potl::randoms
#endif

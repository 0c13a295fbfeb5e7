// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include <immintrin.h>

#include "tile_kernels.hpp"

namespace potl::numeric::conv {
namespace {

alignas(32) constexpr std::int32_t window_of_ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                         0,  0,  0,  0,  0,  0,  0,  0};

struct ymm {
  using type = __m256;
  using sum = float;
  static constexpr bool multiplies_memory = false;
  static constexpr std::int64_t width = 8;
  static __m256i first(std::int64_t some) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(window_of_ones + 8 - some));
  }
  static type zero() { return _mm256_setzero_ps(); }
  static type load(const float* at) { return _mm256_loadu_ps(at); }
  static type load_some(const float* at, std::int64_t some) {
    return _mm256_maskload_ps(at, first(some));
  }
  static __m256i between(std::int64_t low, std::int64_t high) {
    return _mm256_andnot_si256(first(low), first(high));
  }
  static type load_between(const float* at, __m256i lanes) { return _mm256_maskload_ps(at, lanes); }
  static type load_sums(const float* at, std::int64_t some) { return load_some(at, some); }
  static type broadcast(float value) { return _mm256_set1_ps(value); }
  static type fma(type a, type b, type c) { return _mm256_fmadd_ps(a, b, c); }
  static type add(type a, type b) { return _mm256_add_ps(a, b); }
  static type canonical(type a) {
    return _mm256_blendv_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                            _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }
  static void store(float* at, type value) { _mm256_storeu_ps(at, value); }
  static void store_some(float* at, std::int64_t some, type value) {
    if (some == width)
      store(at, value);
    else
      _mm256_maskstore_ps(at, first(some), value);
  }
  static void transpose(const float* source, std::int64_t source_row, std::int64_t rows,
                        std::int64_t columns, float* target, std::int64_t target_row);
  // at[0], at[2] ... for so many lanes, zeros beyond.
  static type load_second(const float* at, std::int64_t some) {
    const std::int64_t all = 2 * some - 1;
    const __m256 low = load_some(at, all < 8 ? all : 8);
    const __m256 high = all > 8 ? load_some(at + 8, all - 8) : zero();
    return _mm256_castpd_ps(
        _mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88)), 0xd8));
  }
  static void interleave(const float* even, const float* odd, std::int64_t count, float* target);
};

alignas(32) constexpr std::int64_t window_of_wide_ones[8] = {-1, -1, -1, -1, 0, 0, 0, 0};

// float32 that becomes double on the way from memory.
struct wide_ymm {
  using type = __m256d;
  using sum = double;
  static constexpr bool multiplies_memory = false;
  static constexpr std::int64_t width = 4;
  static __m256i first(std::int64_t some) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(window_of_wide_ones + 4 - some));
  }
  static type zero() { return _mm256_setzero_pd(); }
  static type load(const float* at) { return _mm256_cvtps_pd(_mm_loadu_ps(at)); }
  static type load_some(const float* at, std::int64_t some) {
    const auto* const ones =
        reinterpret_cast<const __m128i*>(window_of_ones + 8 - some);  // the low half of a mask
    return _mm256_cvtps_pd(_mm_maskload_ps(at, _mm_loadu_si128(ones)));
  }
  static type load_sums(const double* at, std::int64_t some) {
    return _mm256_maskload_pd(at, first(some));
  }
  static type broadcast(double value) { return _mm256_set1_pd(value); }
  static type fma(type a, type b, type c) { return _mm256_fmadd_pd(a, b, c); }
  static type add(type a, type b) { return _mm256_add_pd(a, b); }
  static type root(type a) { return _mm256_sqrt_pd(a); }
  static type canonical(type a) {
    return _mm256_blendv_pd(a, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8000000000000)),
                            _mm256_cmp_pd(a, a, _CMP_UNORD_Q));
  }
  static void store_some(double* at, std::int64_t some, type value) {
    if (some == width)
      _mm256_storeu_pd(at, value);
    else
      _mm256_maskstore_pd(at, first(some), value);
  }
};

void transpose_block(__m256 (&r)[8]) {
  __m256 s[8];
  POTL_UNROLL
  for (int i = 0; i < 8; i += 4) {
    const __m256 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
    const __m256 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]);
    const __m256 d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
    s[i] = _mm256_shuffle_ps(a, c, 0x44);
    s[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    s[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    s[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  POTL_UNROLL
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(s[i], s[4 + i], 0x20);
    r[4 + i] = _mm256_permute2f128_ps(s[i], s[4 + i], 0x31);
  }
}

void ymm::transpose(const float* source, std::int64_t source_row, std::int64_t rows,
                    std::int64_t columns, float* target, std::int64_t target_row) {
  for (std::int64_t row = 0; row < rows; row += 8) {
    const std::int64_t high = rows - row < 8 ? rows - row : 8;
    for (std::int64_t column = 0; column < columns; column += 8) {
      const std::int64_t wide = columns - column < 8 ? columns - column : 8;
      const float* const from = source + row * source_row + column;
      float* const to = target + column * target_row + row;
      __m256 r[8];
      POTL_UNROLL
      for (int i = 0; i < 8; ++i) r[i] = i < high ? load_some(from + i * source_row, wide) : zero();
      transpose_block(r);
      POTL_UNROLL
      for (int i = 0; i < 8; ++i)
        if (i < wide) store_some(to + i * target_row, high, r[i]);
    }
  }
}

void ymm::interleave(const float* even, const float* odd, std::int64_t count, float* target) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 a = load(even + i), b = load(odd + i);
    const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
    store(target + 2 * i, _mm256_permute2f128_ps(low, high, 0x20));
    store(target + 2 * i + 8, _mm256_permute2f128_ps(low, high, 0x31));
  }
  for (; i < count; ++i) {
    target[2 * i] = even[i];
    target[2 * i + 1] = odd[i];
  }
}

constexpr kernels table =
    kernels_of<ymm, wide_ymm, 6>(tiles<ymm, 8, 6, 4, 3>(), tiles<wide_ymm, 8, 6, 4, 3>());

}  // namespace

const kernels& avx2_kernels() noexcept { return table; }

}  // namespace potl::numeric::conv
#endif

// SPDX-License-Identifier: Apache-2.0
// Integers on AVX-512, with or without instructions that multiply and add at once: tiles of 4 x 32
// for 24 bits and 7 x 32 for 16 bits. For files compiled for AVX-512.
#pragma once

#include "numeric/gemm/largest.hpp"
#include "numeric/gemm/tile_integer.hpp"
#include "numeric/gemm/transpose_avx512.hpp"

namespace potl::numeric::detail {
namespace {

struct vector_without_dot {
  using type = __m512i;
  using wide = __m512i;
  static constexpr int width = 16;
  static type zero() { return _mm512_setzero_si512(); }
  static type load(const std::int16_t* from) { return _mm512_loadu_si512(from); }
  static type broadcast(const std::int16_t* from) {
    int both = 0;
    __builtin_memcpy(&both, from, sizeof both);
    return _mm512_set1_epi32(both);
  }
  static type add_products(type sum, type a, type b) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
  }
  static type subtract(type a, type b) { return _mm512_sub_epi32(a, b); }
  static wide widen(type x, int half) {
    return half == 0 ? _mm512_cvtepi32_epi64(_mm512_castsi512_si256(x))
                     : _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(x, 1));
  }
  static wide shifted(wide x, int bits) { return _mm512_sll_epi64(x, _mm_cvtsi32_si128(bits)); }
  static wide add(wide a, wide b) { return _mm512_add_epi64(a, b); }
  static wide load(const std::int64_t* from) { return _mm512_loadu_si512(from); }
  static void store(std::int64_t* to, wide x) { _mm512_storeu_si512(to, x); }
};

template <class Digits>
void pack_digits(const panel<float, std::int16_t>& p) {
  const __m512i limit = _mm512_set1_epi32(Digits::limit);
  const int plane = 2 * p.width;
  pack_blocks(
      p, [&](std::int64_t k, int lane, int lanes, __m512 x) __attribute__((always_inline)) {
        const int filled = p.lanes - lane < 16 ? p.lanes - lane : 16;
        const auto scaled = [&](int half) __attribute__((always_inline)) {
          const __mmask8 mask = static_cast<__mmask8>(lanes16(filled) >> (8 * half));
          const __m512d scale = _mm512_maskz_loadu_pd(mask, p.scale + lane + 8 * half);
          const __m256 part = half == 0 ? _mm512_castps512_ps256(x) : _mm512_extractf32x8_ps(x, 1);
          return _mm512_cvtpd_epi32(_mm512_mul_pd(_mm512_cvtps_pd(part), scale));
        };
        __m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(scaled(0)), scaled(1), 1);
        q = _mm512_max_epi32(_mm512_min_epi32(q, limit),
                             _mm512_sub_epi32(_mm512_setzero_si512(), limit));
        const __mmask16 places = lanes16(lanes);
        std::int16_t* to = p.to + (k / 2) * Digits::count * plane + 2 * lane;
        for (int digit = 0; digit < Digits::count; ++digit) {
          const __m512i d = Digits::cut(q, digit);
          std::int16_t* here = to + digit * plane;
          if (k % 2 == 0) {
            _mm512_mask_storeu_epi32(here, places, _mm512_and_si512(d, _mm512_set1_epi32(0xffff)));
          } else {
            const __m512i before = _mm512_maskz_loadu_epi32(places, here);
            _mm512_mask_storeu_epi32(here, places,
                                     _mm512_or_si512(before, _mm512_slli_epi32(d, 16)));
          }
        }
      });
}

struct cut_24 : digits_24 {
  static inline __attribute__((always_inline)) __m512i cut(__m512i q, int digit) {
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(2048)), 12);
    const __m512i low = _mm512_sub_epi32(q, _mm512_slli_epi32(high, 12));
    return digit == 0 ? high : digit == 1 ? low : _mm512_add_epi32(high, low);
  }
};

struct cut_16_rows : digits_16_rows {
  static inline __attribute__((always_inline)) __m512i cut(__m512i q, int) { return q; }
};

struct cut_16_columns : digits_16_columns {
  static inline __attribute__((always_inline)) __m512i cut(__m512i q, int digit) {
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
    return digit == 0 ? high : _mm512_sub_epi32(q, _mm512_slli_epi32(high, 8));
  }
};

std::int64_t scale_sums(const scaling& s, place* doubtful) {
  std::int64_t count = 0;
  const __m512d smallest = _mm512_set1_pd(0x1p-126);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    const __m512d row = _mm512_set1_pd(s.row_scale[i]);
    for (std::int64_t j = 0; j < s.columns; j += 8) {
      const __mmask8 lanes =
          static_cast<__mmask8>(lanes16(static_cast<int>(s.columns - j < 8 ? s.columns - j : 8)));
      const __m512i sum = _mm512_maskz_loadu_epi64(lanes, s.sums + i * s.sums_row + j);
      const __m512d factor = _mm512_mul_pd(row, _mm512_maskz_loadu_pd(lanes, s.column_scale + j));
      // The one rounding; a power of two then moves the value, where it stays normal.
      const __m512d y = _mm512_mul_pd(_mm512_cvtps_pd(_mm512_cvtepi64_ps(sum)), factor);
      _mm256_mask_storeu_ps(s.y + i * s.y_row + j, lanes, _mm512_cvtpd_ps(y));
      unsigned small = _mm512_mask_cmp_pd_mask(_mm512_test_epi64_mask(sum, sum), _mm512_abs_pd(y),
                                               smallest, _CMP_LT_OQ);
      for (; small != 0; small &= small - 1) doubtful[count++] = {i, j + __builtin_ctz(small)};
    }
  }
  return count;
}

template <class Vector>
struct integer_table {
  static constexpr int rows24 = 4, rows16 = 7;
  static constexpr integer_tiles<Vector, of_24_bits, rows24, 2> tiles24{};
  static constexpr integer_tiles<Vector, of_16_bits, rows16, 2> tiles16{};
  static void multiply24(const integer_tile& t) { tiles24.run(t); }
  static void multiply16(const integer_tile& t) { tiles16.run(t); }
  static constexpr kernels_integer value{
      {rows24, 32, multiply24, pack_digits<cut_24>, pack_digits<cut_24>, 2, 3, 3},
      {rows16, 32, multiply16, pack_digits<cut_16_rows>, pack_digits<cut_16_columns>, 2, 1, 2},
      scale_sums,
      largest};
};

}  // namespace
}  // namespace potl::numeric::detail

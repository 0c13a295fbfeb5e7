// SPDX-License-Identifier: Apache-2.0
// Integers on AVX-512, with or without instructions that multiply and add at once: tiles of 4 x 32
// for 24 bits and 7 x 32 for 16 bits. For files compiled for AVX-512.
#pragma once

#include "numeric/gemm/largest.hpp"
#include "numeric/gemm/pack_digits_avx512.hpp"
#include "numeric/gemm/tile_integer.hpp"

namespace potl::numeric::detail {
namespace {

struct vector_without_dot {
  using type = __m512i;
  using wide = __m512i;
  static constexpr bool multiplies_memory = false;
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

inline std::int64_t scale_sums(const scaling& s, place* doubtful) {
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
      {rows24, 32, multiply24, pack_digits<cut_24>, pack_digits<cut_24>, 2, 6, 6, integer_chunk_24},
      {rows16, 32, multiply16, pack_digits<cut_16_rows>, pack_digits<cut_16_columns>, 2, 4, 2,
       integer_chunk},
      scale_sums,
      largest,
      largest_seen};
};

}  // namespace
}  // namespace potl::numeric::detail

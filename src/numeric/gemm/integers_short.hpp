// SPDX-License-Identifier: Apache-2.0
// Tiles of exact products of integers of at most 255 * 128, as bfloat16 makes them: three
// instructions of VNNI for four k, where integers of any 16 bits take four. Both factors are whole,
// and their sums wrap, while a second sum is that of their upper digits alone: q = 256 h + l with
// |l| <= 128, |h| <= 128. A product differs from 2^16 ha hb by la qb + 256 ha lb, at most
// 2^23 - 2^14, so that over integer_chunk k the exact sum lies within 2^31 of 2^16 times the second
// one, where its lower 32 bits say which it is.
//
// Panels hold, for each four k of all lanes, a pair of int16, the next pair, four digits h, and in
// rows the sum of these. Digits of columns have no sign, as the processor wants them: h + 128.
#pragma once

#include "numeric/gemm/pack_digits_avx512.hpp"
#include "numeric/gemm/tile_integer.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

namespace potl::numeric::detail {
namespace {

inline constexpr int short_rows = 7, short_columns = 32, short_terms = 4, short_bytes = 4;
static_assert(integer_chunk * ((1 << 23) - (1 << 14)) < std::int64_t{1} << 31);

enum class short_side { rows, columns };

// h of q, a byte with a sign.
inline __attribute__((always_inline)) __m512i upper(__m512i q) {
  return _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(127)), 8);
}

// 16 lanes of four terms.
template <short_side Side>
inline __attribute__((always_inline)) void store_four(std::int16_t* to, int plane, __mmask16 lanes,
                                                      const __m512i (&q)[4]) {
  POTL_UNROLLED for (int i = 0; i < 2; ++i) {
    const __m512i odd = _mm512_slli_epi32(q[2 * i + 1], 16);
    _mm512_mask_storeu_epi32(to + i * plane, lanes,
                             _mm512_mask_blend_epi16(0xaaaaaaaa, q[2 * i], odd));
  }
  const __m512i h[4] = {upper(q[0]), upper(q[1]), upper(q[2]), upper(q[3])};
  const __m512i even = _mm512_mask_blend_epi16(0xaaaaaaaa, h[0], _mm512_slli_epi32(h[2], 16));
  const __m512i odd = _mm512_mask_blend_epi16(0xaaaaaaaa, h[1], _mm512_slli_epi32(h[3], 16));
  __m512i bytes = _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, _mm512_slli_epi16(odd, 8));
  if (Side == short_side::columns) bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8(-128));
  _mm512_mask_storeu_epi32(to + 2 * plane, lanes, bytes);
  if (Side == short_side::rows) {
    const __m512i sum =
        _mm512_add_epi32(_mm512_add_epi32(h[0], h[1]), _mm512_add_epi32(h[2], h[3]));
    _mm512_mask_storeu_epi32(to + 3 * plane, lanes, sum);
  }
}

template <short_side Side>
inline void pack_short_across(const panel<float, std::int16_t>& p) {
  const int plane = 2 * p.width;
  for (int lane = 0; lane < p.width && lane < p.lanes; lane += 16) {
    const int filled = p.lanes - lane;
    const __mmask16 places = lanes16(p.width - lane);
    const __m512 exponent = exponents(p.scale + lane, filled);
    const place_runs runs = place_runs::of_lanes(p, lane);
    std::int16_t* to = p.to + 2 * lane;
    for (std::int64_t k = 0; k < p.depth; k += 4, to += 4 * plane) {
      if (p.lane_at == nullptr) __builtin_prefetch(p.from + p.at(lane) + (k + 16) * p.step);
      __m512i q[4];
      POTL_UNROLLED for (int i = 0; i < 4; ++i) {
        q[i] = k + i < p.depth ? integers(runs.load(p.from + p.at_term(k + i)), exponent)
                               : _mm512_setzero_si512();
      }
      store_four<Side>(to, plane, places, q);
    }
  }
}

// Rows of four become columns.
inline __attribute__((always_inline)) void transpose_four(__m128i (&r)[4]) {
  const __m128i a = _mm_unpacklo_epi32(r[0], r[1]), b = _mm_unpackhi_epi32(r[0], r[1]);
  const __m128i c = _mm_unpacklo_epi32(r[2], r[3]), d = _mm_unpackhi_epi32(r[2], r[3]);
  r[0] = _mm_unpacklo_epi64(a, c);
  r[1] = _mm_unpackhi_epi64(a, c);
  r[2] = _mm_unpacklo_epi64(b, d);
  r[3] = _mm_unpackhi_epi64(b, d);
}

template <short_side Side>
inline void pack_short_along(const panel<float, std::int16_t>& p) {
  const int plane = 2 * p.width;
  for (std::int64_t k = 0; k < p.depth; k += 16) {
    const int terms = p.depth - k < 16 ? static_cast<int>(p.depth - k) : 16;
    const place_runs runs =
        p.order == nullptr ? place_runs(terms, k, 1) : place_runs(terms, p.order + k);
    for (int lane = 0; lane < p.width && lane < p.lanes; lane += 4) {
      const int filled = p.lanes - lane;
      const __mmask8 places = static_cast<__mmask8>(lanes16(p.width - lane) & 0xf);
      alignas(64) float exponent[16];
      _mm512_store_ps(exponent, exponents(p.scale + lane, filled));
      // Of each lane: pairs of terms 0 to 7, of 8 to 15, fours of digits, and their sums.
      __m128i part[4][4];
      POTL_UNROLLED for (int i = 0; i < 4; ++i) {
        const __m512i q =
            i < filled ? integers(runs.load(p.from + p.at(lane + i)), _mm512_set1_ps(exponent[i]))
                       : _mm512_setzero_si512();
        const __m256i whole = _mm512_cvtepi32_epi16(q);
        part[0][i] = _mm256_castsi256_si128(whole);
        part[1][i] = _mm256_extracti128_si256(whole, 1);
        const __m128i bytes = _mm512_cvtepi32_epi8(upper(q));
        part[2][i] = Side == short_side::rows ? bytes : _mm_xor_si128(bytes, _mm_set1_epi8(-128));
        part[3][i] = _mm_madd_epi16(_mm_maddubs_epi16(_mm_set1_epi8(1), bytes), _mm_set1_epi16(1));
      }
      POTL_UNROLLED for (int i = 0; i < 4; ++i) transpose_four(part[i]);
      std::int16_t* const to = p.to + k / 4 * 4 * plane + 2 * lane;
      POTL_UNROLLED for (int four = 0; four < 4; ++four) {
        if (4 * four >= terms) break;
        std::int16_t* const here = to + four * 4 * plane;
        _mm_mask_storeu_epi32(here, places, part[four / 2][four % 2 * 2]);
        _mm_mask_storeu_epi32(here + plane, places, part[four / 2][four % 2 * 2 + 1]);
        _mm_mask_storeu_epi32(here + 2 * plane, places, part[2][four]);
        if (Side == short_side::rows)
          _mm_mask_storeu_epi32(here + 3 * plane, places, part[3][four]);
      }
    }
  }
}

template <short_side Side>
void pack_short(const panel<float, std::int16_t>& p) {
  if (p.lane_stride != 1 && p.step == 1) return pack_short_along<Side>(p);
  pack_short_across<Side>(p);
}

// The operand in memory takes no instruction of its own; of two vectors it is read once.
template <bool Bytes>
inline __attribute__((always_inline)) __m512i add_short(__m512i sum, const std::int16_t* a,
                                                        __m512i b) {
  using two = int __attribute__((may_alias));
  if constexpr (Bytes) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(b), "m"(*reinterpret_cast<const two*>(a)));
  } else {
    __asm__("vpdpwssd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(b), "m"(*reinterpret_cast<const two*>(a)));
  }
  return sum;
}
template <bool Bytes>
inline __attribute__((always_inline)) __m512i add_short(__m512i sum, __m512i a, __m512i b) {
  if constexpr (Bytes) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(b), "v"(a));
  } else {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(b), "v"(a));
  }
  return sum;
}

template <bool Bytes, int Rows, int Vectors>
inline __attribute__((always_inline)) void add_part(__m512i (&sum)[Rows][Vectors],
                                                    const std::int16_t* a, const std::int16_t* b) {
  __m512i column[Vectors];
  POTL_UNROLLED for (int j = 0; j < Vectors; ++j) column[j] = _mm512_loadu_si512(b + 32 * j);
  POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
    if (i % 2 == 1) {
      POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
        sum[i][j] = add_short<Bytes>(sum[i][j], a + 2 * i, column[j]);
      }
      continue;
    }
    int four = 0;
    __builtin_memcpy(&four, a + 2 * i, sizeof four);
    const __m512i row = _mm512_set1_epi32(four);
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
      sum[i][j] = add_short<Bytes>(sum[i][j], row, column[j]);
    }
  }
}

template <class Vector, int Rows, int Vectors>
__attribute__((noinline)) void multiply_short(const integer_tile& t) {
  __m512i low[Rows][Vectors], high[Rows][Vectors];
  POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
      low[i][j] = high[i][j] = _mm512_setzero_si512();
    }
  }
  constexpr int a_part = 2 * short_rows, b_part = 2 * short_columns;
  const std::int16_t *a = t.a, *b = t.b;
  const auto* next = static_cast<const char*>(t.next_b.from == nullptr ? a : t.next_b.from);
  __m256i digits = _mm256_setzero_si256();
  for (std::int64_t k = 0; k < t.depth; k += 4, a += 4 * a_part, b += 4 * b_part) {
    __builtin_prefetch(next, 0, 2);
    next += 4 * t.next_b.step;
    add_part<false>(low, a, b);
    add_part<false>(low, a + a_part, b + b_part);
    add_part<true>(high, a + 2 * a_part, b + 2 * b_part);
    digits = _mm256_add_epi32(digits, _mm256_maskz_loadu_epi32(0x7f, a + 3 * a_part));
  }
  int sum_of_digits[8];
  __builtin_memcpy(sum_of_digits, &digits, sizeof digits);
  POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
    // It may overflow in a row that is not finite.
    const __m512i more = _mm512_slli_epi32(_mm512_set1_epi32(sum_of_digits[i]), 7);
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
      const __m512i upper = _mm512_sub_epi32(high[i][j], more);
      const __m512i parts[3] = {upper, _mm512_sub_epi32(low[i][j], _mm512_slli_epi32(upper, 16)),
                                upper};
      add_sums<Vector>(t.c + i * t.c_row + j * 16, t.first, parts, 2, 16);
    }
  }
}

template <class Vector>
struct short_tiles {
  void (*entry[2][short_rows])(const integer_tile&);

  constexpr short_tiles() : entry() { fill<1, 1>(); }
  void run(const integer_tile& t) const { entry[(t.columns + 15) / 16 - 1][t.rows - 1](t); }

 private:
  template <int Vectors, int Rows>
  constexpr void fill() {
    entry[Vectors - 1][Rows - 1] = multiply_short<Vector, Rows, Vectors>;
    if constexpr (Rows < short_rows) {
      fill<Vectors, Rows + 1>();
    } else if constexpr (Vectors < 2) {
      fill<Vectors + 1, 1>();
    }
  }
};

}  // namespace
}  // namespace potl::numeric::detail

#pragma GCC diagnostic pop

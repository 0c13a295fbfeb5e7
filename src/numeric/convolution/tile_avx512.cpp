// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
// g++ 12 sees uninitialised variables in its own header (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include "tile_kernels.hpp"

namespace potl::numeric::conv {
namespace {

struct zmm {
  using type = __m512;
  using sum = float;
  static constexpr std::int64_t width = 16;
  static __mmask16 first(std::int64_t some) {
    return static_cast<__mmask16>((std::uint32_t{1} << some) - 1);
  }
  static type zero() { return _mm512_setzero_ps(); }
  static type load(const float* at) { return _mm512_loadu_ps(at); }
  static type load_some(const float* at, std::int64_t some) {
    return _mm512_maskz_loadu_ps(first(some), at);
  }
  static __mmask16 between(std::int64_t low, std::int64_t high) {
    return static_cast<__mmask16>(first(high) & ~first(low));
  }
  static type load_between(const float* at, __mmask16 lanes) {
    return _mm512_maskz_loadu_ps(lanes, at);
  }
  static type load_sums(const float* at, std::int64_t some) { return load_some(at, some); }
  static type broadcast(float value) { return _mm512_set1_ps(value); }
  static type fma(type a, type b, type c) { return _mm512_fmadd_ps(a, b, c); }
  static constexpr bool multiplies_memory = true;
  // The operand in memory takes no instruction of its own.
  static type fma_at(const float* a, type b, type c) {
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
  }
  static type add(type a, type b) { return _mm512_add_ps(a, b); }
  static type canonical(type a) {
    return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q),
                              _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
  }
  static void store(float* at, type value) { _mm512_storeu_ps(at, value); }
  static void store_some(float* at, std::int64_t some, type value) {
    _mm512_mask_storeu_ps(at, first(some), value);
  }
  static void transpose(const float* source, std::int64_t source_row, std::int64_t rows,
                        std::int64_t columns, float* target, std::int64_t target_row);
  // at[0], at[2] ... for so many lanes, zeros beyond.
  static type load_second(const float* at, std::int64_t some) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const std::uint32_t lanes = (std::uint32_t{1} << (2 * some - 1)) - 1;
    return _mm512_permutex2var_ps(
        _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), at), even,
        _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> 16), at + 16));
  }
  static void interleave(const float* even, const float* odd, std::int64_t count, float* target);
};

// float32 that becomes double on the way from memory.
struct wide_zmm {
  using type = __m512d;
  using sum = double;
  static constexpr std::int64_t width = 8;
  static __mmask8 first(std::int64_t some) {
    return static_cast<__mmask8>((std::uint32_t{1} << some) - 1);
  }
  static type zero() { return _mm512_setzero_pd(); }
  static type load(const float* at) { return _mm512_cvtps_pd(_mm256_loadu_ps(at)); }
  static type load_some(const float* at, std::int64_t some) {
    return _mm512_cvtps_pd(_mm256_maskz_loadu_ps(first(some), at));
  }
  static type load_sums(const double* at, std::int64_t some) {
    return _mm512_maskz_loadu_pd(first(some), at);
  }
  static type broadcast(double value) { return _mm512_set1_pd(value); }
  static type fma(type a, type b, type c) { return _mm512_fmadd_pd(a, b, c); }
  static constexpr bool multiplies_memory = false;
  static type add(type a, type b) { return _mm512_add_pd(a, b); }
  static type root(type a) { return _mm512_sqrt_pd(a); }
  static type canonical(type a) {
    return _mm512_mask_mov_pd(a, _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q),
                              _mm512_castsi512_pd(_mm512_set1_epi64(0x7ff8000000000000)));
  }
  static void store_some(double* at, std::int64_t some, type value) {
    _mm512_mask_storeu_pd(at, first(some), value);
  }
};

// Rows become columns of a block of 16 x 16.
inline __attribute__((always_inline)) void transpose_block(__m512 (&r)[16]) {
  __m512d t[16];
  POTL_UNROLL
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_castps_pd(_mm512_unpacklo_ps(r[i], r[i + 1]));
    t[i + 1] = _mm512_castps_pd(_mm512_unpackhi_ps(r[i], r[i + 1]));
  }
  POTL_UNROLL
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(t[i], t[i + 2]));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(t[i], t[i + 2]));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(t[i + 1], t[i + 3]));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(t[i + 1], t[i + 3]));
  }
  __m512 s[16];
  POTL_UNROLL
  for (int i = 0; i < 4; ++i) {
    s[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
    s[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    s[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
    s[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
  }
  POTL_UNROLL
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f32x4(s[i], s[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_f32x4(s[i], s[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_f32x4(s[4 + i], s[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_f32x4(s[4 + i], s[12 + i], 0xdd);
  }
}

// 16 rows, whole blocks.
void transpose_blocks(const float* from, std::int64_t source_row, std::int64_t blocks, float* to,
                      std::int64_t target_row) {
  std::int64_t row = 4 * source_row, row3 = 3 * row, step = 4 * target_row, step3 = 3 * step;
  const auto* source = reinterpret_cast<const char*>(from);
  auto* target = reinterpret_cast<char*>(to);
  for (std::int64_t block = 0; block < blocks; ++block) {
    // A pointer for each row would not leave enough registers: the compiler shall not make them.
    __asm__ volatile("" : "+r"(row), "+r"(row3), "+r"(step), "+r"(step3));
    __m512 r[16];
    const char* four = source;
    POTL_UNROLL
    for (int i = 0; i < 16; i += 4, four += 4 * row) {
      r[i] = _mm512_loadu_ps(four);
      r[i + 1] = _mm512_loadu_ps(four + row);
      r[i + 2] = _mm512_loadu_ps(four + 2 * row);
      r[i + 3] = _mm512_loadu_ps(four + row3);
    }
    transpose_block(r);
    POTL_UNROLL
    for (int i = 0; i < 16; i += 4, target += 4 * step) {
      _mm512_storeu_ps(target, r[i]);
      _mm512_storeu_ps(target + step, r[i + 1]);
      _mm512_storeu_ps(target + 2 * step, r[i + 2]);
      _mm512_storeu_ps(target + step3, r[i + 3]);
    }
    source += 64;
  }
}

void transpose_part(const float* from, std::int64_t source_row, std::int64_t high,
                    std::int64_t wide, float* to, std::int64_t target_row) {
  __m512 r[16];
  POTL_UNROLL
  for (int i = 0; i < 16; ++i)
    r[i] = i < high ? zmm::load_some(from + i * source_row, wide) : zmm::zero();
  transpose_block(r);
  POTL_UNROLL
  for (int i = 0; i < 16; ++i)
    if (i < wide) zmm::store_some(to + i * target_row, high, r[i]);
}

// 16 rows of four columns, from column `first` of them on. Rows that are multiples of four apart
// share a vector, so that nothing crosses its quarters any more.
inline __attribute__((always_inline)) void transpose_four(const float* from,
                                                          std::int64_t source_row, float* to,
                                                          std::int64_t target_row, int first) {
  __m512 r[4];
  POTL_UNROLL
  for (int i = 0; i < 4; ++i, from += source_row) {
    const __m512 one = _mm512_zextps128_ps512(_mm_loadu_ps(from));
    const __m512 two = _mm512_insertf32x4(one, _mm_loadu_ps(from + 4 * source_row), 1);
    const __m512 three = _mm512_insertf32x4(two, _mm_loadu_ps(from + 8 * source_row), 2);
    r[i] = _mm512_insertf32x4(three, _mm_loadu_ps(from + 12 * source_row), 3);
  }
  const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r[0], r[1]));
  const __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(r[0], r[1]));
  const __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(r[2], r[3]));
  const __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(r[2], r[3]));
  r[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
  r[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
  r[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
  r[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  POTL_UNROLL
  for (int i = 0; i < 4; ++i)
    if (i >= first) zmm::store(to + i * target_row, r[i]);
}

// Without optimization g++'s header makes this a macro, whose mask changes its sign.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
__m512 gathered(const float* from, __m512i at) { return _mm512_i32gather_ps(at, from, 4); }
#pragma GCC diagnostic pop

void zmm::transpose(const float* source, std::int64_t source_row, std::int64_t rows,
                    std::int64_t columns, float* target, std::int64_t target_row) {
  constexpr std::int64_t near = 32;  // rows of a few cache lines together
  const std::int64_t whole = columns / 16, rest = columns % 16;
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (std::int64_t row = 0; row < rows; row += 16) {
    const std::int64_t high = rows - row < 16 ? rows - row : 16;
    const float* const from = source + row * source_row;
    float* const to = target + row;
    if (high == 16) {
      transpose_blocks(from, source_row, whole, to, target_row);
      if (rest >= 4) {
        for (std::int64_t column = 16 * whole; column < columns; column += 4) {
          // The last four may begin with some that are done.
          const std::int64_t at = column < columns - 4 ? column : columns - 4;
          transpose_four(from + at, source_row, to + at * target_row, target_row,
                         static_cast<int>(column - at));
        }
        continue;
      }
      if (source_row <= near && rest > 0) {
        const __m512i at =
            _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(source_row)));
        for (std::int64_t column = 16 * whole; column < columns; ++column)
          store(to + column * target_row, gathered(from + column, at));
        continue;
      }
    } else {
      for (std::int64_t column = 0; column < 16 * whole; column += 16)
        transpose_part(from + column, source_row, high, 16, to + column * target_row, target_row);
    }
    if (rest > 0)
      transpose_part(from + 16 * whole, source_row, high, rest, to + 16 * whole * target_row,
                     target_row);
  }
}

void zmm::interleave(const float* even, const float* odd, std::int64_t count, float* target) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  for (std::int64_t i = 0; i < count; i += 16) {
    const std::int64_t some = count - i < 16 ? count - i : 16;
    const __m512 a = load_some(even + i, some), b = load_some(odd + i, some);
    store_some(target + 2 * i, 2 * some < 16 ? 2 * some : 16, _mm512_permutex2var_ps(a, low, b));
    if (some > 8)
      store_some(target + 2 * i + 16, 2 * some - 16, _mm512_permutex2var_ps(a, high, b));
  }
}

constexpr kernels table =
    kernels_of<zmm, wide_zmm, 14>(tiles<zmm, 14, 14, 8, 6>(), tiles<wide_zmm, 14, 14, 8, 6>());

}  // namespace

const kernels& avx512_kernels() noexcept { return table; }

}  // namespace potl::numeric::conv
#endif

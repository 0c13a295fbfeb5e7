// SPDX-License-Identifier: Apache-2.0
// 8 floats or 4 doubles: the operations of lanes.hpp with AVX2 and FMA. Masks are vectors whose
// lanes have all bits set or none.
#pragma once

#include <immintrin.h>

#include "lanes.hpp"

namespace potl::numeric::elementwise {
namespace {

struct mask_of_8 {
  __m256 v;
};
struct mask_of_4 {
  __m256d v;
};
POTL_INLINE mask_of_8 both(mask_of_8 a, mask_of_8 b) { return {_mm256_and_ps(a.v, b.v)}; }
POTL_INLINE mask_of_8 either(mask_of_8 a, mask_of_8 b) { return {_mm256_or_ps(a.v, b.v)}; }
POTL_INLINE mask_of_8 negate(mask_of_8 a) {
  return {_mm256_xor_ps(a.v, _mm256_castsi256_ps(_mm256_set1_epi32(-1)))};
}
POTL_INLINE bool any(mask_of_8 a) { return _mm256_movemask_ps(a.v) != 0; }
POTL_INLINE mask_of_4 both(mask_of_4 a, mask_of_4 b) { return {_mm256_and_pd(a.v, b.v)}; }
POTL_INLINE mask_of_4 either(mask_of_4 a, mask_of_4 b) { return {_mm256_or_pd(a.v, b.v)}; }
POTL_INLINE mask_of_4 negate(mask_of_4 a) {
  return {_mm256_xor_pd(a.v, _mm256_castsi256_pd(_mm256_set1_epi64x(-1)))};
}
POTL_INLINE bool any(mask_of_4 a) { return _mm256_movemask_pd(a.v) != 0; }

/// The first `count` lanes as a mask.
POTL_INLINE __m256i first_of_4(std::size_t count) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(count)),
                            _mm256_setr_epi64x(0, 1, 2, 3));
}
POTL_INLINE __m256i first_of_8(std::size_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

struct f64x4 {
  using element = double;
  using word = std::uint64_t;
  using mask = mask_of_4;
  using wide = f64x4;
  static constexpr int lanes = 4;
  static constexpr int wides = 1;

  __m256d v;

  f64x4() = default;
  POTL_INLINE explicit f64x4(__m256d value) : v(value) {}
  POTL_INLINE explicit f64x4(double value) : v(_mm256_set1_pd(value)) {}
  POTL_INLINE static f64x4 load(const double* from) { return f64x4(_mm256_loadu_pd(from)); }
  POTL_INLINE void store(double* to) const { _mm256_storeu_pd(to, v); }
  POTL_INLINE static f64x4 load_first(const double* from, std::size_t count) {
    return f64x4(_mm256_maskload_pd(from, first_of_4(count)));
  }
  POTL_INLINE void store_first(double* to, std::size_t count) const {
    _mm256_maskstore_pd(to, first_of_4(count), v);
  }
  POTL_INLINE f64x4 first(std::size_t count, f64x4 rest) const {
    return f64x4(_mm256_blendv_pd(rest.v, v, _mm256_castsi256_pd(first_of_4(count))));
  }
  POTL_INLINE static f64x4 bits(word value) {
    return f64x4(_mm256_castsi256_pd(_mm256_set1_epi64x(static_cast<long long>(value))));
  }
  POTL_INLINE __m256i integers() const { return _mm256_castpd_si256(v); }
  POTL_INLINE static f64x4 of(__m256i integers) { return f64x4(_mm256_castsi256_pd(integers)); }
};

struct f32x8 {
  using element = float;
  using word = std::uint32_t;
  using mask = mask_of_8;
  using wide = f64x4;
  static constexpr int lanes = 8;
  static constexpr int wides = 2;

  __m256 v;

  f32x8() = default;
  POTL_INLINE explicit f32x8(__m256 value) : v(value) {}
  POTL_INLINE explicit f32x8(float value) : v(_mm256_set1_ps(value)) {}
  POTL_INLINE static f32x8 load(const float* from) { return f32x8(_mm256_loadu_ps(from)); }
  POTL_INLINE void store(float* to) const { _mm256_storeu_ps(to, v); }
  POTL_INLINE static f32x8 load_first(const float* from, std::size_t count) {
    return f32x8(_mm256_maskload_ps(from, first_of_8(count)));
  }
  POTL_INLINE void store_first(float* to, std::size_t count) const {
    _mm256_maskstore_ps(to, first_of_8(count), v);
  }
  POTL_INLINE f32x8 first(std::size_t count, f32x8 rest) const {
    return f32x8(_mm256_blendv_ps(rest.v, v, _mm256_castsi256_ps(first_of_8(count))));
  }
  POTL_INLINE static f32x8 bits(word value) {
    return f32x8(_mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(value))));
  }
  POTL_INLINE __m256i integers() const { return _mm256_castps_si256(v); }
  POTL_INLINE static f32x8 of(__m256i integers) { return f32x8(_mm256_castsi256_ps(integers)); }
  POTL_INLINE wide widen(int part) const {
    return wide(
        _mm256_cvtps_pd(part == 0 ? _mm256_castps256_ps128(v) : _mm256_extractf128_ps(v, 1)));
  }
  POTL_INLINE static f32x8 narrow(const wide* from) {
    return f32x8(_mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(from[0].v)),
                                      _mm256_cvtpd_ps(from[1].v), 1));
  }
};

// The same operations for both: the suffixes differ.
// NOLINTBEGIN(bugprone-macro-parentheses): names and types
#define POTL_LANES(R, M, F, I)                                                                   \
  POTL_INLINE R operator+(R a, R b) { return R(_mm256_add_##F(a.v, b.v)); }                      \
  POTL_INLINE R operator-(R a, R b) { return R(_mm256_sub_##F(a.v, b.v)); }                      \
  POTL_INLINE R operator*(R a, R b) { return R(_mm256_mul_##F(a.v, b.v)); }                      \
  POTL_INLINE R operator/(R a, R b) { return R(_mm256_div_##F(a.v, b.v)); }                      \
  POTL_INLINE R fma(R a, R b, R c) { return R(_mm256_fmadd_##F(a.v, b.v, c.v)); }                \
  POTL_INLINE R sqrt(R a) { return R(_mm256_sqrt_##F(a.v)); }                                    \
  POTL_INLINE R smaller(R a, R b) { return R(_mm256_min_##F(a.v, b.v)); }                        \
  POTL_INLINE R larger(R a, R b) { return R(_mm256_max_##F(a.v, b.v)); }                         \
  POTL_INLINE M less(R a, R b) { return {_mm256_cmp_##F(a.v, b.v, _CMP_LT_OQ)}; }                \
  POTL_INLINE M equal(R a, R b) { return {_mm256_cmp_##F(a.v, b.v, _CMP_EQ_OQ)}; }               \
  POTL_INLINE M is_nan(R a) { return {_mm256_cmp_##F(a.v, a.v, _CMP_UNORD_Q)}; }                 \
  /* A blend looks at the highest bit only, but and, or need all: compare as integers. */        \
  POTL_INLINE M sign_bit(R a) {                                                                  \
    return {R::of(_mm256_cmpgt_##I(_mm256_setzero_si256(), a.integers())).v};                    \
  }                                                                                              \
  POTL_INLINE R select(M where, R yes, R no) {                                                   \
    return R(_mm256_blendv_##F(no.v, yes.v, where.v));                                           \
  }                                                                                              \
  POTL_INLINE R bit_and(R a, R b) { return R(_mm256_and_##F(a.v, b.v)); }                        \
  POTL_INLINE R bit_or(R a, R b) { return R(_mm256_or_##F(a.v, b.v)); }                          \
  POTL_INLINE R bit_xor(R a, R b) { return R(_mm256_xor_##F(a.v, b.v)); }                        \
  POTL_INLINE R add_bits(R a, R b) { return R::of(_mm256_add_##I(a.integers(), b.integers())); } \
  template <int Count>                                                                           \
  POTL_INLINE R shift_left(R a) {                                                                \
    return R::of(_mm256_slli_##I(a.integers(), Count));                                          \
  }                                                                                              \
  template <int Count>                                                                           \
  POTL_INLINE R shift_right(R a) {                                                               \
    return R::of(_mm256_srli_##I(a.integers(), Count));                                          \
  }
// NOLINTEND(bugprone-macro-parentheses)
POTL_LANES(f32x8, mask_of_8, ps, epi32)
POTL_LANES(f64x4, mask_of_4, pd, epi64)
#undef POTL_LANES

/// Lanes j and j + Half change places.
template <int Half>
POTL_INLINE f32x8 exchanged(f32x8 a) {
  if constexpr (Half == 4) return f32x8(_mm256_permute2f128_ps(a.v, a.v, 1));
  return f32x8(_mm256_permute_ps(a.v, Half == 2 ? 0b01'00'11'10 : 0b10'11'00'01));
}
template <int Half>
POTL_INLINE f64x4 exchanged(f64x4 a) {
  if constexpr (Half == 2) return f64x4(_mm256_permute2f128_pd(a.v, a.v, 1));
  return f64x4(_mm256_permute_pd(a.v, 0b0101));
}

POTL_INLINE f32x8 lookup_half(const float* table, __m256i index) {
  const __m256 below = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
  const __m256 above = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index);
  const __m256 is_above = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
  return f32x8(_mm256_blendv_ps(below, above, is_above));
}
POTL_INLINE f32x8 lookup(const float (&table)[16], f32x8 index) {
  return lookup_half(table, index.integers());
}
POTL_INLINE f32x8 lookup(const float (&table)[32], f32x8 index) {
  const __m256 is_above = _mm256_castsi256_ps(_mm256_slli_epi32(index.integers(), 27));
  return f32x8(_mm256_blendv_ps(lookup_half(table, index.integers()).v,
                                lookup_half(table + 16, index.integers()).v, is_above));
}

}  // namespace
}  // namespace potl::numeric::elementwise

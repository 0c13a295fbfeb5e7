// SPDX-License-Identifier: Apache-2.0
// 16 floats or 8 doubles: the operations of lanes.hpp with AVX-512.
#pragma once

// g++ 12 finds its own intrinsics uninitialised (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include "lanes.hpp"

namespace potl::numeric::elementwise {
namespace {

struct mask16 {
  __mmask16 v;
};
struct mask8 {
  __mmask8 v;
};
POTL_INLINE mask16 both(mask16 a, mask16 b) { return {static_cast<__mmask16>(a.v & b.v)}; }
POTL_INLINE mask16 either(mask16 a, mask16 b) { return {static_cast<__mmask16>(a.v | b.v)}; }
POTL_INLINE mask16 negate(mask16 a) { return {static_cast<__mmask16>(~a.v)}; }
POTL_INLINE bool any(mask16 a) { return a.v != 0; }
POTL_INLINE mask8 both(mask8 a, mask8 b) { return {static_cast<__mmask8>(a.v & b.v)}; }
POTL_INLINE mask8 either(mask8 a, mask8 b) { return {static_cast<__mmask8>(a.v | b.v)}; }
POTL_INLINE mask8 negate(mask8 a) { return {static_cast<__mmask8>(~a.v)}; }
POTL_INLINE bool any(mask8 a) { return a.v != 0; }

/// The lowest `count` bits.
POTL_INLINE unsigned low_bits(std::size_t count) { return (1u << count) - 1u; }

struct f64x8 {
  using element = double;
  using word = std::uint64_t;
  using mask = mask8;
  using wide = f64x8;
  static constexpr int lanes = 8;
  static constexpr int wides = 1;

  __m512d v;

  f64x8() = default;
  POTL_INLINE explicit f64x8(__m512d value) : v(value) {}
  POTL_INLINE explicit f64x8(double value) : v(_mm512_set1_pd(value)) {}
  POTL_INLINE static f64x8 load(const double* from) { return f64x8(_mm512_loadu_pd(from)); }
  POTL_INLINE void store(double* to) const { _mm512_storeu_pd(to, v); }
  POTL_INLINE static f64x8 load_first(const double* from, std::size_t count) {
    return f64x8(_mm512_maskz_loadu_pd(static_cast<__mmask8>(low_bits(count)), from));
  }
  POTL_INLINE void store_first(double* to, std::size_t count) const {
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>(low_bits(count)), v);
  }
  POTL_INLINE f64x8 first(std::size_t count, f64x8 rest) const {
    return f64x8(_mm512_mask_mov_pd(rest.v, static_cast<__mmask8>(low_bits(count)), v));
  }
  POTL_INLINE static f64x8 bits(word value) {
    return f64x8(_mm512_castsi512_pd(_mm512_set1_epi64(static_cast<long long>(value))));
  }
  POTL_INLINE __m512i integers() const { return _mm512_castpd_si512(v); }
  POTL_INLINE static f64x8 of(__m512i integers) { return f64x8(_mm512_castsi512_pd(integers)); }
};

struct f32x16 {
  using element = float;
  using word = std::uint32_t;
  using mask = mask16;
  using wide = f64x8;
  static constexpr int lanes = 16;
  static constexpr int wides = 2;

  __m512 v;

  f32x16() = default;
  POTL_INLINE explicit f32x16(__m512 value) : v(value) {}
  POTL_INLINE explicit f32x16(float value) : v(_mm512_set1_ps(value)) {}
  POTL_INLINE static f32x16 load(const float* from) { return f32x16(_mm512_loadu_ps(from)); }
  POTL_INLINE void store(float* to) const { _mm512_storeu_ps(to, v); }
  POTL_INLINE static f32x16 load_first(const float* from, std::size_t count) {
    return f32x16(_mm512_maskz_loadu_ps(static_cast<__mmask16>(low_bits(count)), from));
  }
  POTL_INLINE void store_first(float* to, std::size_t count) const {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(low_bits(count)), v);
  }
  POTL_INLINE f32x16 first(std::size_t count, f32x16 rest) const {
    return f32x16(_mm512_mask_mov_ps(rest.v, static_cast<__mmask16>(low_bits(count)), v));
  }
  POTL_INLINE static f32x16 bits(word value) {
    return f32x16(_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(value))));
  }
  POTL_INLINE __m512i integers() const { return _mm512_castps_si512(v); }
  POTL_INLINE static f32x16 of(__m512i integers) { return f32x16(_mm512_castsi512_ps(integers)); }
  POTL_INLINE wide widen(int part) const {
    return wide(
        _mm512_cvtps_pd(part == 0 ? _mm512_castps512_ps256(v) : _mm512_extractf32x8_ps(v, 1)));
  }
  POTL_INLINE static f32x16 narrow(const wide* from) {
    return f32x16(_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(from[0].v)),
                                     _mm512_cvtpd_ps(from[1].v), 1));
  }
};

// The same operations for both: the suffixes differ.
// NOLINTBEGIN(bugprone-macro-parentheses): names and types
#define POTL_LANES(R, M, F, I)                                                                    \
  POTL_INLINE R operator+(R a, R b) { return R(_mm512_add_##F(a.v, b.v)); }                       \
  POTL_INLINE R operator-(R a, R b) { return R(_mm512_sub_##F(a.v, b.v)); }                       \
  POTL_INLINE R operator*(R a, R b) { return R(_mm512_mul_##F(a.v, b.v)); }                       \
  POTL_INLINE R operator/(R a, R b) { return R(_mm512_div_##F(a.v, b.v)); }                       \
  POTL_INLINE R fma(R a, R b, R c) { return R(_mm512_fmadd_##F(a.v, b.v, c.v)); }                 \
  POTL_INLINE R sqrt(R a) { return R(_mm512_sqrt_##F(a.v)); }                                     \
  POTL_INLINE R smaller(R a, R b) { return R(_mm512_min_##F(a.v, b.v)); }                         \
  POTL_INLINE R larger(R a, R b) { return R(_mm512_max_##F(a.v, b.v)); }                          \
  POTL_INLINE M less(R a, R b) { return {_mm512_cmp_##F##_mask(a.v, b.v, _CMP_LT_OQ)}; }          \
  POTL_INLINE M equal(R a, R b) { return {_mm512_cmp_##F##_mask(a.v, b.v, _CMP_EQ_OQ)}; }         \
  POTL_INLINE M is_nan(R a) { return {_mm512_cmp_##F##_mask(a.v, a.v, _CMP_UNORD_Q)}; }           \
  POTL_INLINE M sign_bit(R a) { return {_mm512_mov##I##_mask(a.integers())}; }                    \
  POTL_INLINE R select(M where, R yes, R no) {                                                    \
    return R(_mm512_mask_blend_##F(where.v, no.v, yes.v));                                        \
  }                                                                                               \
  POTL_INLINE R bit_and(R a, R b) { return R::of(_mm512_and_si512(a.integers(), b.integers())); } \
  POTL_INLINE R bit_or(R a, R b) { return R::of(_mm512_or_si512(a.integers(), b.integers())); }   \
  POTL_INLINE R bit_xor(R a, R b) { return R::of(_mm512_xor_si512(a.integers(), b.integers())); } \
  POTL_INLINE R add_bits(R a, R b) { return R::of(_mm512_add_##I(a.integers(), b.integers())); }  \
  template <int Count>                                                                            \
  POTL_INLINE R shift_left(R a) {                                                                 \
    return R::of(_mm512_slli_##I(a.integers(), Count));                                           \
  }                                                                                               \
  template <int Count>                                                                            \
  POTL_INLINE R shift_right(R a) {                                                                \
    return R::of(_mm512_srli_##I(a.integers(), Count));                                           \
  }
// NOLINTEND(bugprone-macro-parentheses)
POTL_LANES(f32x16, mask16, ps, epi32)
POTL_LANES(f64x8, mask8, pd, epi64)
#undef POTL_LANES

/// Lanes j and j + Half change places.
template <int Half>
POTL_INLINE f32x16 exchanged(f32x16 a) {
  constexpr int halves = 0b01'00'11'10, neighbours = 0b10'11'00'01;
  if constexpr (Half >= 4)
    return f32x16(_mm512_shuffle_f32x4(a.v, a.v, Half == 8 ? halves : neighbours));
  return f32x16(_mm512_permute_ps(a.v, Half == 2 ? halves : neighbours));
}
template <int Half>
POTL_INLINE f64x8 exchanged(f64x8 a) {
  constexpr int halves = 0b01'00'11'10, neighbours = 0b10'11'00'01;
  if constexpr (Half >= 2)
    return f64x8(_mm512_shuffle_f64x2(a.v, a.v, Half == 4 ? halves : neighbours));
  return f64x8(_mm512_permute_pd(a.v, 0b01010101));
}

POTL_INLINE f32x16 lookup(const float (&table)[16], f32x16 index) {
  return f32x16(_mm512_permutexvar_ps(index.integers(), _mm512_loadu_ps(table)));
}

POTL_INLINE f32x16 lookup(const float (&table)[32], f32x16 index) {
  return f32x16(_mm512_permutex2var_ps(_mm512_loadu_ps(table), index.integers(),
                                       _mm512_loadu_ps(table + 16)));
}

// Shorter than the general forms; the results are the same.

/// Every class of number gives itself, NaN the other operand.
POTL_INLINE f32x16 canonical(f32x16 a) {
  return f32x16(_mm512_fixupimm_ps(quiet_nan<f32x16>().v, a.v, _mm512_set1_epi32(0x11111100), 0));
}
POTL_INLINE f64x8 canonical(f64x8 a) {
  return f64x8(_mm512_fixupimm_pd(quiet_nan<f64x8>().v, a.v, _mm512_set1_epi64(0x11111100), 0));
}

namespace in_float {

/// scalef rounds once, as the product with two exact powers does.
POTL_INLINE f32x16 scale(f32x16 p, f32x16 n) { return f32x16(_mm512_scalef_ps(p.v, n.v)); }
POTL_INLINE f32x16 scale_floor(f32x16 p, f32x16, f32x16 n) { return scale(p, n); }

// scalef takes any n, so that r alone must be kept from being infinite or NaN.
POTL_INLINE f32x16 exp_range(f32x16 x) { return x; }
POTL_INLINE f32x16 exp_rest(f32x16 r) {
  return f32x16(_mm512_range_ps(r.v, _mm512_set1_ps(0.5F), 0b0010));  // the smaller magnitude
}

// e is infinite at 0 and infinity, m is NaN below 0, and so is the sum.
POTL_INLINE log_parts<f32x16> split_log(f32x16 x) {
  return {f32x16(_mm512_getexp_ps(x.v)),
          f32x16(_mm512_getmant_ps(x.v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_nan))};
}
POTL_INLINE f32x16 log_special(f32x16, f32x16 value) { return value; }

POTL_INLINE f32x16 limited(f32x16 limit, f32x16 x) {
  return f32x16(_mm512_range_ps(x.v, limit.v, 0b1010));  // the smaller magnitude, no sign
}
/// Lanes of NaN keep what the sum is written over.
POTL_INLINE f32x16 signed_sum(f32x16 a, f32x16 b, f32x16 x) {
  const __mmask16 ordered = _mm512_cmp_ps_mask(x.v, x.v, _CMP_ORD_Q);
  const __m512 sum = _mm512_mask_add_ps(quiet_nan<f32x16>().v, ordered, a.v, b.v);
  constexpr int first_or_both_others = 0xF8;
  return f32x16::of(_mm512_mask_ternarylogic_epi32(_mm512_castps_si512(sum), ordered, x.integers(),
                                                   f32x16::bits(sign_word<f32x16>).integers(),
                                                   first_or_both_others));
}

}  // namespace in_float
}  // namespace
}  // namespace potl::numeric::elementwise

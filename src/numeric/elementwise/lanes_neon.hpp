// SPDX-License-Identifier: Apache-2.0
// 4 floats or 2 doubles: the operations of lanes.hpp on 64-bit ARM. Masks are vectors whose lanes
// have all bits set or none.
#pragma once

#include <arm_neon.h>

#include "lanes.hpp"

namespace potl::numeric::elementwise {
namespace {

struct mask_of_f32x4 {
  uint32x4_t v;
};
struct mask_of_f64x2 {
  uint64x2_t v;
};

/// The elements before `count` of an array that ends there; +0 beyond.
template <std::size_t Lanes, class Element>
POTL_INLINE void copy_first(const Element* from, std::size_t count, Element (&to)[Lanes]) {
  for (std::size_t i = 0; i < Lanes; ++i) to[i] = i < count ? from[i] : Element{0};
}

struct f64x2 {
  using element = double;
  using word = std::uint64_t;
  using mask = mask_of_f64x2;
  using wide = f64x2;
  static constexpr int lanes = 2;
  static constexpr int wides = 1;

  float64x2_t v;

  f64x2() = default;
  POTL_INLINE explicit f64x2(float64x2_t value) : v(value) {}
  POTL_INLINE explicit f64x2(double value) : v(vdupq_n_f64(value)) {}
  POTL_INLINE static f64x2 load(const double* from) { return f64x2(vld1q_f64(from)); }
  POTL_INLINE void store(double* to) const { vst1q_f64(to, v); }
  POTL_INLINE static f64x2 load_first(const double* from, std::size_t count) {
    double all[lanes];
    copy_first(from, count, all);
    return load(all);
  }
  POTL_INLINE void store_first(double* to, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) to[i] = v[i];
  }
  POTL_INLINE f64x2 first(std::size_t count, f64x2 rest) const {
    const uint64x2_t lane = {0, 1};
    return f64x2(vbslq_f64(vcltq_u64(lane, vdupq_n_u64(count)), v, rest.v));
  }
  POTL_INLINE static f64x2 bits(word value) { return of(vdupq_n_u64(value)); }
  POTL_INLINE uint64x2_t integers() const { return vreinterpretq_u64_f64(v); }
  POTL_INLINE static f64x2 of(uint64x2_t integers) {
    return f64x2(vreinterpretq_f64_u64(integers));
  }
};

struct f32x4 {
  using element = float;
  using word = std::uint32_t;
  using mask = mask_of_f32x4;
  using wide = f64x2;
  static constexpr int lanes = 4;
  static constexpr int wides = 2;

  float32x4_t v;

  f32x4() = default;
  POTL_INLINE explicit f32x4(float32x4_t value) : v(value) {}
  POTL_INLINE explicit f32x4(float value) : v(vdupq_n_f32(value)) {}
  POTL_INLINE static f32x4 load(const float* from) { return f32x4(vld1q_f32(from)); }
  POTL_INLINE void store(float* to) const { vst1q_f32(to, v); }
  POTL_INLINE static f32x4 load_first(const float* from, std::size_t count) {
    float all[lanes];
    copy_first(from, count, all);
    return load(all);
  }
  POTL_INLINE void store_first(float* to, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) to[i] = v[i];
  }
  POTL_INLINE f32x4 first(std::size_t count, f32x4 rest) const {
    const uint32x4_t lane = {0, 1, 2, 3};
    return f32x4(
        vbslq_f32(vcltq_u32(lane, vdupq_n_u32(static_cast<std::uint32_t>(count))), v, rest.v));
  }
  POTL_INLINE static f32x4 bits(word value) { return of(vdupq_n_u32(value)); }
  POTL_INLINE uint32x4_t integers() const { return vreinterpretq_u32_f32(v); }
  POTL_INLINE static f32x4 of(uint32x4_t integers) {
    return f32x4(vreinterpretq_f32_u32(integers));
  }
  POTL_INLINE wide widen(int part) const {
    return wide(part == 0 ? vcvt_f64_f32(vget_low_f32(v)) : vcvt_high_f64_f32(v));
  }
  POTL_INLINE static f32x4 narrow(const wide* from) {
    return f32x4(vcvt_high_f32_f64(vcvt_f32_f64(from[0].v), from[1].v));
  }
};

// The same operations for both: the suffixes differ.
// NOLINTBEGIN(bugprone-macro-parentheses): names and types
#define POTL_LANES(R, M, F, U, S)                                                           \
  POTL_INLINE M both(M a, M b) { return {a.v & b.v}; }                                      \
  POTL_INLINE M either(M a, M b) { return {a.v | b.v}; }                                    \
  POTL_INLINE M negate(M a) { return {~a.v}; }                                              \
  POTL_INLINE bool any(M a) {                                                               \
    return vmaxvq_u32(vreinterpretq_u32_u8(vreinterpretq_u8_##U(a.v))) != 0;                \
  }                                                                                         \
  POTL_INLINE R operator+(R a, R b) { return R(vaddq_##F(a.v, b.v)); }                      \
  POTL_INLINE R operator-(R a, R b) { return R(vsubq_##F(a.v, b.v)); }                      \
  POTL_INLINE R operator*(R a, R b) { return R(vmulq_##F(a.v, b.v)); }                      \
  POTL_INLINE R operator/(R a, R b) { return R(vdivq_##F(a.v, b.v)); }                      \
  POTL_INLINE R fma(R a, R b, R c) { return R(vfmaq_##F(c.v, a.v, b.v)); }                  \
  POTL_INLINE R sqrt(R a) { return R(vsqrtq_##F(a.v)); }                                    \
  POTL_INLINE M less(R a, R b) { return {vcltq_##F(a.v, b.v)}; }                            \
  POTL_INLINE M equal(R a, R b) { return {vceqq_##F(a.v, b.v)}; }                           \
  POTL_INLINE M is_nan(R a) { return negate(equal(a, a)); }                                 \
  POTL_INLINE M sign_bit(R a) { return {vcltzq_##S(vreinterpretq_##S##_##F(a.v))}; }        \
  POTL_INLINE R select(M where, R yes, R no) { return R(vbslq_##F(where.v, yes.v, no.v)); } \
  /* Not vminq and vmaxq, which return NaN where one is. */                                 \
  POTL_INLINE R smaller(R a, R b) { return select(less(a, b), a, b); }                      \
  POTL_INLINE R larger(R a, R b) { return select(less(b, a), a, b); }                       \
  POTL_INLINE R bit_and(R a, R b) { return R::of(a.integers() & b.integers()); }            \
  POTL_INLINE R bit_or(R a, R b) { return R::of(a.integers() | b.integers()); }             \
  POTL_INLINE R bit_xor(R a, R b) { return R::of(a.integers() ^ b.integers()); }            \
  POTL_INLINE R add_bits(R a, R b) { return R::of(a.integers() + b.integers()); }           \
  template <int Count>                                                                      \
  POTL_INLINE R shift_left(R a) {                                                           \
    return R::of(a.integers() << Count);                                                    \
  }                                                                                         \
  template <int Count>                                                                      \
  POTL_INLINE R shift_right(R a) {                                                          \
    return R::of(a.integers() >> Count);                                                    \
  }
// NOLINTEND(bugprone-macro-parentheses)
POTL_LANES(f32x4, mask_of_f32x4, f32, u32, s32)
POTL_LANES(f64x2, mask_of_f64x2, f64, u64, s64)
#undef POTL_LANES

/// Lanes j and j + Half change places.
template <int Half>
POTL_INLINE f32x4 exchanged(f32x4 a) {
  return f32x4(Half == 2 ? vextq_f32(a.v, a.v, 2) : vrev64q_f32(a.v));
}
template <int Half>
POTL_INLINE f64x2 exchanged(f64x2 a) {
  return f64x2(vextq_f64(a.v, a.v, 1));
}

/// 64 bytes of a table.
POTL_INLINE uint8x16x4_t four_vectors(const float* from) {
  return vld1q_u8_x4(reinterpret_cast<const std::uint8_t*>(from));
}
/// Where the four bytes of the table's elements lie.
template <std::uint32_t Count>
POTL_INLINE uint8x16_t bytes_of(f32x4 index) {
  const uint32x4_t first = (index.integers() & (Count - 1)) << 2;
  return vreinterpretq_u8_u32(first * 0x01010101u + 0x03020100u);
}
POTL_INLINE f32x4 lookup(const float (&table)[16], f32x4 index) {
  return f32x4(vreinterpretq_f32_u8(vqtbl4q_u8(four_vectors(table), bytes_of<16>(index))));
}
POTL_INLINE f32x4 lookup(const float (&table)[32], f32x4 index) {
  const uint8x16_t at = bytes_of<32>(index);
  const uint8x16_t below = vqtbl4q_u8(four_vectors(table), at);
  // What lies out of reach, here the lower half, keeps what it has.
  return f32x4(vreinterpretq_f32_u8(vqtbx4q_u8(below, four_vectors(table + 16), at - 64)));
}

}  // namespace
}  // namespace potl::numeric::elementwise

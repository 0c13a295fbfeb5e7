// SPDX-License-Identifier: Apache-2.0
// What the functions need of a number, and the form with one lane: plain float or double, for the
// portable level and for a GPU. lanes_neon.hpp, lanes_avx2.hpp and lanes_avx512.hpp have 2 to 16
// lanes; each operation is one IEEE operation or one on bits, so that all forms give the same bits.
//
// Everything here is in unnamed namespaces: each instruction set must get its own copy, never one
// that the linker shares.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__FAST_MATH__)
#error "reproducible functions need IEEE arithmetic: build without -ffast-math"
#endif
static_assert(FLT_EVAL_METHOD == 0, "reproducible functions need plain float arithmetic");

// Builtins, because a function of the standard library may become a symbol that the linker shares.
#if defined(__CUDA_ARCH__)
#define POTL_FMAF __fmaf_rn
#define POTL_FMA __fma_rn
#define POTL_SQRTF __fsqrt_rn
#define POTL_SQRT __dsqrt_rn
#else
#define POTL_FMAF __builtin_fmaf
#define POTL_FMA __builtin_fma
#define POTL_SQRTF __builtin_sqrtf
#define POTL_SQRT __builtin_sqrt
#endif
#if defined(__CUDACC__)
#define POTL_INLINE __host__ __device__ __forceinline__
#define POTL_FUNCTION __host__ __device__ inline
#else
#define POTL_INLINE [[gnu::always_inline]] inline
#define POTL_FUNCTION inline
#endif

namespace potl::numeric::elementwise {
namespace {

/// One lane. `element` is float or double; bits are those of its IEEE format.
template <class Element>
struct single {
  using element = Element;
  using word = std::conditional_t<sizeof(Element) == 4, std::uint32_t, std::uint64_t>;
  using mask = bool;
  using wide = single<double>;
  static constexpr int lanes = 1;
  static constexpr int wides = 1;

  Element v;

  single() = default;
  POTL_INLINE explicit single(Element value) : v(value) {}
  POTL_INLINE static single load(const Element* from) { return single(*from); }
  POTL_INLINE void store(Element* to) const { *to = v; }
  /// The first `count` lanes, at least 1; the others are +0, and are not stored.
  POTL_INLINE static single load_first(const Element* from, std::size_t) { return single(*from); }
  POTL_INLINE void store_first(Element* to, std::size_t) const { *to = v; }
  /// The first `count` lanes of this one, the rest of the other.
  POTL_INLINE single first(std::size_t, single) const { return *this; }
  POTL_INLINE static single bits(word value) { return single(__builtin_bit_cast(Element, value)); }
  POTL_INLINE word to_bits() const { return __builtin_bit_cast(word, v); }
  /// The lanes as doubles, `wides` vectors of them, and back with one rounding.
  POTL_INLINE wide widen(int) const { return wide(static_cast<double>(v)); }
  POTL_INLINE static single narrow(const wide* from) {
    return single(static_cast<Element>(from[0].v));
  }
};

template <class E>
POTL_INLINE single<E> operator+(single<E> a, single<E> b) {
  return single<E>(a.v + b.v);
}
template <class E>
POTL_INLINE single<E> operator-(single<E> a, single<E> b) {
  return single<E>(a.v - b.v);
}
template <class E>
POTL_INLINE single<E> operator*(single<E> a, single<E> b) {
  return single<E>(a.v * b.v);
}
template <class E>
POTL_INLINE single<E> operator/(single<E> a, single<E> b) {
  return single<E>(a.v / b.v);
}
/// a b + c, rounded once.
template <class E>
POTL_INLINE single<E> fma(single<E> a, single<E> b, single<E> c) {
  if constexpr (sizeof(E) == 4) {
    return single<E>(POTL_FMAF(a.v, b.v, c.v));
  } else {
    return single<E>(POTL_FMA(a.v, b.v, c.v));
  }
}
template <class E>
POTL_INLINE single<E> sqrt(single<E> a) {
  if constexpr (sizeof(E) == 4) {
    return single<E>(POTL_SQRTF(a.v));
  } else {
    return single<E>(POTL_SQRT(a.v));
  }
}
/// a < b ? a : b, which is b where one is NaN.
template <class E>
POTL_INLINE single<E> smaller(single<E> a, single<E> b) {
  return a.v < b.v ? a : b;
}
/// a > b ? a : b, which is b where one is NaN.
template <class E>
POTL_INLINE single<E> larger(single<E> a, single<E> b) {
  return a.v > b.v ? a : b;
}
template <class E>
POTL_INLINE bool less(single<E> a, single<E> b) {
  return a.v < b.v;
}
template <class E>
POTL_INLINE bool equal(single<E> a, single<E> b) {
  return a.v == b.v;
}
template <class E>
POTL_INLINE bool is_nan(single<E> a) {
  return a.v != a.v;
}
/// Is the highest bit set?
template <class E>
POTL_INLINE bool sign_bit(single<E> a) {
  return (a.to_bits() >> (8 * sizeof(E) - 1)) != 0;
}
POTL_INLINE bool both(bool a, bool b) { return a && b; }
POTL_INLINE bool either(bool a, bool b) { return a || b; }
POTL_INLINE bool negate(bool a) { return !a; }
POTL_INLINE bool any(bool a) { return a; }
template <class E>
POTL_INLINE single<E> select(bool where, single<E> yes, single<E> no) {
  return where ? yes : no;
}
template <class E>
POTL_INLINE single<E> bit_and(single<E> a, single<E> b) {
  using word = typename single<E>::word;
  return single<E>::bits(static_cast<word>(a.to_bits() & b.to_bits()));
}
template <class E>
POTL_INLINE single<E> bit_or(single<E> a, single<E> b) {
  using word = typename single<E>::word;
  return single<E>::bits(static_cast<word>(a.to_bits() | b.to_bits()));
}
template <class E>
POTL_INLINE single<E> bit_xor(single<E> a, single<E> b) {
  using word = typename single<E>::word;
  return single<E>::bits(static_cast<word>(a.to_bits() ^ b.to_bits()));
}
/// The bits as integers: sums modulo 2^32 or 2^64.
template <class E>
POTL_INLINE single<E> add_bits(single<E> a, single<E> b) {
  using word = typename single<E>::word;
  return single<E>::bits(static_cast<word>(a.to_bits() + b.to_bits()));
}
template <int Count, class E>
POTL_INLINE single<E> shift_left(single<E> a) {
  using word = typename single<E>::word;
  return single<E>::bits(static_cast<word>(a.to_bits() << Count));
}
template <int Count, class E>
POTL_INLINE single<E> shift_right(single<E> a) {
  using word = typename single<E>::word;
  return single<E>::bits(static_cast<word>(a.to_bits() >> Count));
}
/// The table's element at the lowest bits of the index.
template <class E, std::size_t Count>
POTL_INLINE single<E> lookup(const E (&table)[Count], single<E> index) {
  static_assert(Count == 16 || Count == 32);
  return single<E>(table[index.to_bits() & (Count - 1)]);
}

// For every form of lanes.

template <class R>
POTL_INLINE R constant(double value) {
  return R(static_cast<typename R::element>(value));
}
template <class R>
constexpr typename R::word sign_word = typename R::word{1} << (8 * sizeof(typename R::element) - 1);
template <class R>
POTL_INLINE R magnitude(R a) {
  return bit_and(a, R::bits(~sign_word<R>));
}
template <class R>
POTL_INLINE R negative(R a) {
  return bit_xor(a, R::bits(sign_word<R>));
}
/// The magnitude of the first with the sign of the second; the first is not negative.
template <class R>
POTL_INLINE R with_sign(R a, R sign) {
  return bit_or(a, bit_and(sign, R::bits(sign_word<R>)));
}
template <class R>
POTL_INLINE R quiet_nan() {
  using word = typename R::word;
  return R::bits(sizeof(word) == 4 ? static_cast<word>(0x7FC00000u)
                                   : static_cast<word>(0x7FF8000000000000u));
}
template <class R>
POTL_INLINE R infinity() {
  using word = typename R::word;
  return R::bits(sizeof(word) == 4 ? static_cast<word>(0x7F800000u)
                                   : static_cast<word>(0x7FF0000000000000u));
}
/// Every NaN as the same one.
template <class R>
POTL_INLINE R canonical(R a) {
  return select(is_nan(a), quiet_nan<R>(), a);
}
/// A positive number as 2^e m.
template <class R>
struct log_parts {
  R e, m;
};
/// Horner's rule with fused multiply-adds; coefficients from the constant upwards.
template <class R, std::size_t Count>
POTL_INLINE R polynomial(const double (&coefficients)[Count], R x) {
  R value = constant<R>(coefficients[Count - 1]);
  for (std::size_t i = Count - 1; i-- > 0;) value = fma(value, x, constant<R>(coefficients[i]));
  return value;
}

}  // namespace
}  // namespace potl::numeric::elementwise

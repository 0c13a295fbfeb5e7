// SPDX-License-Identifier: Apache-2.0
// Sine, cosine and tangent in double lanes. Arguments below 2^20 are reduced by three parts of
// pi/2, the first step of which is exact; larger ones by integers, after Payne and Hanek ("Radian
// reduction for trigonometric functions", SIGNUM 18, 1983), lane by lane.
#pragma once

#include "exp_log.hpp"

namespace potl::numeric::elementwise {
namespace {

inline constexpr double half_pi_high = 0x1.921fb54442d18p+0;
inline constexpr double half_pi_middle = 0x1.1a62633145c07p-54;
inline constexpr double half_pi_low = -0x1.f1976b7ed8fbcp-110;

/// x = quarters pi/2 + high + low; |high| <= pi/4. Of `quarters` only the lowest two bits count.
struct reduced {
  double high, low, quarters;
};

POTL_INLINE std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + ((a0 * b0) >> 32);
  const std::uint64_t other = a0 * b1 + (middle & 0xFFFFFFFFu);
  return a1 * b1 + (middle >> 32) + (other >> 32);
}
POTL_INLINE double power_of_two(int exponent) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// For 2^20 <= x < infinity.
POTL_FUNCTION reduced reduce_large(double x) {
  // The bits of 2/pi after the point.
  constexpr std::uint64_t two_over_pi[] = {
      0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u, 0xdb6295993c439041u, 0xfe5163abdebbc561u,
      0xb7246e3a424dd2e0u, 0x06492eea09d1921cu, 0xfe1deb1cb129a73eu, 0xe88235f52ebb4484u,
      0xe99c7026b45f7e41u, 0x3991d639835339f4u, 0x9c845f8bbdf9283bu, 0x1ff897ffde05980fu,
      0xef2f118b5a0a6d1fu, 0x6d367ecf27cb09b7u, 0x4f463f669e5fea2du, 0x7527bac7ebe5f17bu,
      0x3d0739f78a5292eau, 0x6bfb5fb11f8d5d08u, 0x56033046fc7b6babu, 0xf0cfbc209af4361du};
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, x);
  const int exponent = static_cast<int>(bits >> 52) - 1075;
  const std::uint64_t m = (bits & 0x000FFFFFFFFFFFFFu) | 0x0010000000000000u;
  // x = m 2^exponent. Bits of 2/pi with weights that give multiples of 4 are left out: the window
  // of 192 bits starts after `skipped` of them.
  const int skipped = exponent > 2 ? exponent - 2 : 0;
  const int word = skipped / 64, offset = skipped % 64;
  std::uint64_t window[3];
  for (int i = 0; i < 3; ++i) {
    window[i] = two_over_pi[word + i] << offset;
    if (offset != 0) window[i] |= two_over_pi[word + i + 1] >> (64 - offset);
  }
  // m * window, 256 bits, highest word first.
  std::uint64_t product[4] = {0, 0, 0, m * window[2]};
  std::uint64_t carry = multiply_high(m, window[2]);
  for (int i = 1; i >= 0; --i) {
    const std::uint64_t low = m * window[i];
    product[i + 1] = low + carry;
    carry = multiply_high(m, window[i]) + (product[i + 1] < low ? 1u : 0u);
  }
  product[0] = carry;
  // The point lies 192 - (exponent - skipped) bits from the right: move it behind the second bit.
  const int up = 62 + exponent - skipped;
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t next = i < 3 ? product[i + 1] : 0;
    if (up == 64) {
      product[i] = next;
    } else if (up != 0) {
      product[i] = (product[i] << up) | (next >> (64 - up));
    }
  }
  std::uint64_t quarters = product[0] >> 62;
  std::uint64_t fraction[3];  // after the point, left-justified
  for (int i = 0; i < 3; ++i) fraction[i] = (product[i] << 2) | (i < 3 ? product[i + 1] >> 62 : 0);
  const bool below = (fraction[0] >> 63) != 0;  // round to the nearest quarter
  if (below) {
    ++quarters;
    for (std::uint64_t& part : fraction) part = ~part;  // the last of 192 bits does not matter
  }
  // At most 61 bits are lost to cancellation (Kahan's search over all doubles).
  int zeros = 0;
  while (zeros < 127 && (fraction[0] >> 63) == 0) {
    for (int i = 0; i < 3; ++i)
      fraction[i] = (fraction[i] << 1) | (i < 2 ? fraction[i + 1] >> 63 : 0);
    ++zeros;
  }
  double high = static_cast<double>(fraction[0] >> 11) * power_of_two(-53 - zeros);
  double low = static_cast<double>(((fraction[0] & 0x7FFu) << 42) | (fraction[1] >> 22)) *
               power_of_two(-53 - zeros) * power_of_two(-53);
  if (below) {
    high = -high;
    low = -low;
  }
  const double value = high * half_pi_high;
  const double error = POTL_FMA(high, half_pi_high, -value);
  return {value, error + (high * half_pi_middle + low * half_pi_high),
          static_cast<double>(quarters & 3)};
}

/// high, low, and the sum whose lowest bits are the number of quarters.
template <class R>
struct reduced_lanes {
  R high, low, quarters;
};
template <class R>
POTL_INLINE reduced_lanes<R> reduce_angle(R x) {
  const R magic = constant<R>(round_magic);
  const R counted = fma(x, constant<R>(0x1.45f306dc9c883p-1), magic);
  const R n = counted - magic;
  const R first = fma(n, constant<R>(-half_pi_high), x);  // exact
  const R high = fma(n, constant<R>(-half_pi_middle), first);
  const R low = fma(n, constant<R>(-half_pi_middle), first - high);
  reduced_lanes<R> result{high, fma(n, constant<R>(-half_pi_low), low), counted};
  const auto large = negate(less(magnitude(x), constant<R>(0x1p20)));
  if (any(large)) {
    double in[R::lanes], h[R::lanes], l[R::lanes], q[R::lanes];
    x.store(in);
    result.high.store(h);
    result.low.store(l);
    result.quarters.store(q);
    for (int i = 0; i < R::lanes; ++i) {
      const double a = in[i] < 0 ? -in[i] : in[i];
      if (a < 0x1p20) continue;
      reduced one{0.0, 0.0, 0.0};
      if (a <= DBL_MAX) {
        one = reduce_large(a);
      } else {
        one.high = in[i] - in[i];  // NaN
      }
      const bool flip = in[i] < 0;
      h[i] = flip ? -one.high : one.high;
      l[i] = flip ? -one.low : one.low;
      q[i] = (flip ? -one.quarters : one.quarters) + round_magic;
    }
    result = {R::load(h), R::load(l), R::load(q)};
  }
  return result;
}

/// sin(r + low) for |r| <= pi/4.
template <class R>
POTL_INLINE R sin_core(R r, R low) {
  constexpr double series[] = {
      -1.0 / 6,        1.0 / 120,        -1.0 / 5040,         1.0 / 362880,
      -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368e3, 1.0 / 355687428096e3};
  const R z = r * r;
  const R cosine = fma(z, constant<R>(-0.5), constant<R>(1.0));
  return r + fma(r * z, polynomial(series, z), low * cosine);
}
template <class R>
POTL_INLINE R cos_core(R r, R low) {
  constexpr double series[] = {
      1.0 / 24,        -1.0 / 720,         1.0 / 40320,         -1.0 / 3628800,
      1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888e3, -1.0 / 6402373705728e3};
  const R one = constant<R>(1.0);
  const R z = r * r;
  const R half = z * constant<R>(0.5);
  const R w = one - half;
  const R lost = (one - w) - half;
  return w + (lost + fma(z * z, polynomial(series, z), negative(r * low)));
}

template <class R>
POTL_INLINE R sin(R x) {
  const reduced_lanes<R> a = reduce_angle(x);
  const auto odd = sign_bit(shift_left<63>(a.quarters));
  const R value = select(odd, cos_core(a.high, a.low), sin_core(a.high, a.low));
  const R sign = shift_left<62>(a.quarters);
  const R result = bit_xor(value, bit_and(sign, R::bits(sign_word<R>)));
  return select(equal(x, constant<R>(0.0)), x, result);
}
template <class R>
POTL_INLINE R cos(R x) {
  const reduced_lanes<R> a = reduce_angle(x);
  const auto odd = sign_bit(shift_left<63>(a.quarters));
  const R value = select(odd, sin_core(a.high, a.low), cos_core(a.high, a.low));
  // Negative in quarters 1 and 2: where quarters + 1 has bit 1.
  const R sign = shift_left<62>(add_bits(a.quarters, R::bits(1u)));
  return bit_xor(value, bit_and(sign, R::bits(sign_word<R>)));
}
template <class R>
POTL_INLINE R tan(R x) {
  const reduced_lanes<R> a = reduce_angle(x);
  const auto odd = sign_bit(shift_left<63>(a.quarters));
  const R s = sin_core(a.high, a.low);
  const R c = cos_core(a.high, a.low);
  const R result = select(odd, negative(c), s) / select(odd, s, c);
  return select(equal(x, constant<R>(0.0)), x, result);
}

}  // namespace
}  // namespace potl::numeric::elementwise

// SPDX-License-Identifier: Apache-2.0
// Elements of any type as doubles, block by block. Exact but for 64-bit integers beyond 2^53, which
// are compared exactly elsewhere.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <potl/core/dtype.hpp>

namespace potl::numeric {

/// Elements of `type` as numbers: a complex element is two.
constexpr std::size_t lanes_of(dtype type) noexcept { return type == dtype::c64 ? 2 : 1; }

inline double widen_half(std::uint16_t bits) noexcept {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = fraction == 0 ? HUGE_VAL : std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

/// The two 8-bit formats of the OCP specification (E4M3 has no infinity).
inline double widen_f8(std::uint8_t bits, int fraction_bits) noexcept {
  const int exponent_bits = 7 - fraction_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top = (1 << exponent_bits) - 1;
  const int exponent = (bits >> fraction_bits) & top;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  double value = 0;
  if (fraction_bits == 2 && exponent == top) {
    value = fraction == 0 ? HUGE_VAL : std::nan("");
  } else if (fraction_bits == 3 && exponent == top && fraction == 7) {
    value = std::nan("");
  } else if (exponent == 0) {
    value = std::ldexp(fraction, 1 - bias - fraction_bits);
  } else {
    value = std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  }
  return (bits & 0x80) != 0 ? -value : value;
}

namespace detail {
template <class Element>
void copy_widened(const std::uint8_t* from, std::size_t count, double* to) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, from + i * sizeof(Element), sizeof(Element));
    to[i] = static_cast<double>(element);
  }
}
}  // namespace detail

/// `count` numbers (see lanes_of) from `from` into `to`.
inline void widen(dtype type, const std::uint8_t* from, std::size_t count, double* to) noexcept {
  switch (type) {
    case dtype::boolean:
    case dtype::u8: return detail::copy_widened<std::uint8_t>(from, count, to);
    case dtype::i8: return detail::copy_widened<std::int8_t>(from, count, to);
    case dtype::i16: return detail::copy_widened<std::int16_t>(from, count, to);
    case dtype::u16: return detail::copy_widened<std::uint16_t>(from, count, to);
    case dtype::i32: return detail::copy_widened<std::int32_t>(from, count, to);
    case dtype::u32: return detail::copy_widened<std::uint32_t>(from, count, to);
    case dtype::i64: return detail::copy_widened<std::int64_t>(from, count, to);
    case dtype::u64: return detail::copy_widened<std::uint64_t>(from, count, to);
    case dtype::f32:
    case dtype::c64: return detail::copy_widened<float>(from, count, to);
    case dtype::f64: return detail::copy_widened<double>(from, count, to);
    case dtype::bf16:
      for (std::size_t i = 0; i < count; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, from + 2 * i, 2);
        to[i] = static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
      }
      return;
    case dtype::f16:
      for (std::size_t i = 0; i < count; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, from + 2 * i, 2);
        to[i] = widen_half(bits);
      }
      return;
    case dtype::f8_e4m3:
      for (std::size_t i = 0; i < count; ++i) to[i] = widen_f8(from[i], 3);
      return;
    case dtype::f8_e5m2:
      for (std::size_t i = 0; i < count; ++i) to[i] = widen_f8(from[i], 2);
      return;
  }
}

}  // namespace potl::numeric

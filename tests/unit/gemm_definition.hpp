// SPDX-License-Identifier: Apache-2.0
// What each mode of gemm.hpp means, one element at a time, in plain operations. Independent of the
// library: nothing of numeric/ is used here.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace gemm_definition {

template <class Value>
Value canonical(Value x) {
  return x != x ? std::numeric_limits<Value>::quiet_NaN() : x;
}

/// ord32 and ord64.
template <class Value>
Value ordered(const std::vector<Value>& a, const std::vector<Value>& b) {
  Value total = 0;
  for (std::size_t begin = 0; begin < a.size(); begin += 512) {
    Value chain = 0;
    for (std::size_t k = begin; k < std::min(a.size(), begin + 512); ++k) {
      chain = std::fma(a[k], b[k], chain);
    }
    total = begin == 0 ? chain : total + chain;
  }
  return canonical(total);
}

/// An integer times 2^-300 of 1024 bits, in digits of 16.
struct big_number {
  std::array<std::int64_t, 64> digit{};

  void add(double x) {  // a multiple of 2^-300
    int exponent = 0;
    auto rest = static_cast<std::int64_t>(std::ldexp(std::frexp(x, &exponent), 53));
    exponent += 300 - 53;
    while (exponent < 0) rest /= 2, ++exponent;
    const auto at = static_cast<std::size_t>(exponent / 16);
    const std::int64_t sign = rest < 0 ? -1 : 1;
    std::int64_t size = sign * rest;
    for (std::size_t i = at; size != 0; ++i) {
      digit[i] += sign * ((size & 0xffff) << (exponent % 16));
      size >>= 16;
    }
  }
  /// Rounded to the multiple of 2^spacing that is nearest, ties to even; the spacing is that of a
  /// float with `bits - 8` significant bits.
  double rounded(int bits) const {
    std::array<std::int64_t, 64> d = digit;
    const auto carry = [&d] {
      for (std::size_t i = 0; i + 1 < d.size(); ++i) {
        const std::int64_t low = d[i] & 0xffff;
        d[i + 1] += (d[i] - low) / 65536;
        d[i] = low;
      }
    };
    carry();
    const bool negative = d.back() < 0;
    if (negative) {
      for (auto& one : d) one = -one;
      carry();
    }
    const auto bit = [&d](int i) {
      return i < 0 ? 0 : (d[static_cast<std::size_t>(i / 16)] >> (i % 16)) & 1;
    };
    int top = 1023;
    while (top >= 0 && bit(top) == 0) --top;
    if (top < 0) return 0;
    const int last = std::max(top, 300 - 126) - (bits - 9);  // place of the last bit kept
    double kept = 0;
    for (int i = top; i >= last; --i) kept = 2 * kept + static_cast<double>(bit(i));
    bool beyond = false;
    for (int i = last - 2; i >= 0; --i) beyond = beyond || bit(i) != 0;
    const bool odd = bit(last) != 0;
    if (bit(last - 1) != 0 && (beyond || odd)) kept += 1;
    const double size = std::ldexp(kept, last - 300);
    return size == 0 ? 0 : negative ? -size : size;
  }
};

/// cr32, and what log64 rounds to where no tie is near.
inline float rounded(const std::vector<float>& a, const std::vector<float>& b, int bits) {
  big_number exact;
  double special = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const double product = static_cast<double>(a[k]) * static_cast<double>(b[k]);
    if (std::isfinite(product)) {
      exact.add(product);
    } else {
      special += product;
    }
  }
  if (special != 0) return canonical(static_cast<float>(special));
  const double value = exact.rounded(bits);
  if (std::fabs(value) >= 0x1p128)
    return std::copysign(std::numeric_limits<float>::infinity(),
                         static_cast<float>(value > 0 ? 1 : -1));
  return static_cast<float>(value);
}

/// xint24 and xint16.
inline float scaled_integers(const std::vector<float>& a, const std::vector<float>& b, int bits) {
  const auto scale_of = [&](const std::vector<float>& x) {
    int top = -126;  // all |x| < 2^(top + 1)
    for (const float value : x) {
      if (value != 0 && std::isfinite(value)) top = std::max(top, std::ilogb(value));
    }
    return bits - 2 - top;
  };
  const int scale_a = scale_of(a), scale_b = scale_of(b);
  const auto integer = [&](float value, int scale) {
    const double limit = std::ldexp(1.0, bits - 1) - 1;
    return std::clamp(std::nearbyint(std::ldexp(static_cast<double>(value), scale)), -limit, limit);
  };
  big_number sum;  // of products below 2^46
  for (std::size_t k = 0; k < a.size(); ++k) {
    if (!std::isfinite(a[k]) || !std::isfinite(b[k]))
      return canonical(std::numeric_limits<float>::quiet_NaN());
    sum.add(integer(a[k], scale_a) * integer(b[k], scale_b));
  }
  // The same bits, moved to where they belong: one rounding.
  big_number moved;
  const int shift = scale_a + scale_b;
  for (std::size_t i = 0; i < sum.digit.size(); ++i) {
    const auto value = static_cast<double>(sum.digit[i]);
    if (value != 0) moved.add(std::ldexp(value, 16 * static_cast<int>(i) - 300 - shift));
  }
  return static_cast<float>(moved.rounded(32));
}

}  // namespace gemm_definition

// SPDX-License-Identifier: Apache-2.0
// Largest magnitudes in the rows or columns of an operand, in plain loops that the compiler turns
// into vectors. Everything is local to the including file, as in
// tile_vector.hpp.
#pragma once

#include <cstdint>

#include "numeric/gemm/kernels.hpp"

namespace potl::numeric::detail {
namespace {

inline std::uint32_t magnitude_bits(const float* x) {
  std::uint32_t bits = 0;
  __builtin_memcpy(&bits, x, sizeof bits);
  return bits & 0x7fffffffU;
}

inline void largest(const lines& l, std::uint32_t* out) {
  constexpr std::int64_t strip = 128;  // lines whose maxima stay in the first cache
  for (std::int64_t line = 0; line < l.count; ++line) out[line] = 0;
  if (l.stride == 1) {
    for (std::int64_t left = 0; left < l.count; left += strip) {
      const std::int64_t width = l.count - left < strip ? l.count - left : strip;
      for (std::int64_t k = 0; k < l.terms; ++k) {
        const float* x = l.from + k * l.step + left;
        for (std::int64_t j = 0; j < width; ++j) {
          const std::uint32_t bits = magnitude_bits(x + j);
          out[left + j] = out[left + j] > bits ? out[left + j] : bits;
        }
      }
    }
    return;
  }
  for (std::int64_t line = 0; line < l.count; ++line) {
    const float* x = l.from + line * l.stride;
    std::uint32_t most = 0;
    if (l.step == 1) {
      for (std::int64_t k = 0; k < l.terms; ++k) {
        const std::uint32_t bits = magnitude_bits(x + k);
        most = most > bits ? most : bits;
      }
    } else {
      for (std::int64_t k = 0; k < l.terms; ++k) {
        const std::uint32_t bits = magnitude_bits(x + k * l.step);
        most = most > bits ? most : bits;
      }
    }
    out[line] = most;
  }
}

}  // namespace
}  // namespace potl::numeric::detail

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

inline void largest_seen(const std::uint32_t* from, const std::int64_t* offsets,
                         std::int64_t offset_count, std::int64_t count, std::uint32_t* out) {
#if defined(__AVX512F__)
  constexpr int bytes = 64;
#elif defined(__AVX2__)
  constexpr int bytes = 32;
#else
  constexpr int bytes = 16;
#endif
  // Signed, which more processors compare: magnitudes have no sign bit.
  typedef std::int32_t vector __attribute__((vector_size(bytes)));
  constexpr std::int64_t lanes = bytes / 4;
  for (std::int64_t i = 0; i < count; i += lanes) {
    vector most{};
    for (std::int64_t k = 0; k < offset_count; ++k) {
      vector x;
      __builtin_memcpy(&x, from + offsets[k] + i, sizeof x);
      most = most > x ? most : x;
    }
    std::uint32_t found[lanes];
    __builtin_memcpy(found, &most, sizeof found);
    for (std::int64_t lane = 0; lane < lanes && i + lane < count; ++lane)
      out[i + lane] = found[lane];
  }
}

}  // namespace
}  // namespace potl::numeric::detail

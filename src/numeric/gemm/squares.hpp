// SPDX-License-Identifier: Apache-2.0
// Squares of the rows or columns of an operand, in plain loops that the compiler turns into
// vectors. Everything is local to the including file, as in tile_vector.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/gemm/kernels.hpp"

namespace potl::numeric::detail {
namespace {

inline constexpr int line_lanes = 8;  // of norm() of rounding.hpp
inline constexpr std::int64_t line_strip =
    512;  // lines side by side, whose sums stay in the first cache

// Lines side by side: along the lines, term after term.
inline void squares_across(const lines& l, double* out) {
  for (std::int64_t left = 0; left < l.count; left += line_strip) {
    double lane[line_lanes][line_strip] = {};
    const std::int64_t width = l.count - left < line_strip ? l.count - left : line_strip;
    for (std::int64_t k = 0; k < l.terms; ++k) {
      const float* x = l.from + k * l.step + left;
      double* sum = lane[k % line_lanes];
      // Rows far apart, which no processor fetches by itself.
      for (std::int64_t j = 0; j < width; j += 16) __builtin_prefetch(x + 8 * l.step + j);
      for (std::int64_t j = 0; j < width; ++j) {
        const double value = x[j];
        sum[j] += value * value;
      }
    }
    for (std::int64_t j = 0; j < width; ++j) {
      for (int i = 0; i < line_lanes; ++i) out[(left + j) * line_lanes + i] = lane[i][j];
    }
  }
}

using eight_floats = float __attribute__((vector_size(32)));
using eight_doubles = double __attribute__((vector_size(64)));

// Several lines at a time: additions of one wait for each other.
template <std::size_t Lines>
inline void squares_along(const float* x, std::int64_t stride, std::int64_t terms, double* lanes) {
  eight_doubles sum[Lines] = {};
  std::int64_t k = 0;
  for (; k + line_lanes <= terms; k += line_lanes) {
    for (std::size_t line = 0; line < Lines; ++line) {
      eight_floats part;
      __builtin_memcpy(&part, x + static_cast<std::int64_t>(line) * stride + k, sizeof part);
      const eight_doubles value = __builtin_convertvector(part, eight_doubles);
      sum[line] += value * value;
    }
  }
  __builtin_memcpy(lanes, &sum, sizeof sum);
  for (std::size_t line = 0; line < Lines; ++line) {
    for (int i = 0; k + i < terms; ++i) {
      const double value = x[static_cast<std::int64_t>(line) * stride + k + i];
      lanes[line * line_lanes + static_cast<std::size_t>(i)] += value * value;
    }
  }
}

inline void squares(const lines& l, double* out) {
  if (l.stride == 1) return squares_across(l, out);
  std::int64_t line = 0;
  constexpr std::int64_t together = 4;
  for (; l.step == 1 && line + together <= l.count; line += together) {
    squares_along<together>(l.from + line * l.stride, l.stride, l.terms, out + line * line_lanes);
  }
  for (; line < l.count; ++line) {
    const float* x = l.from + line * l.stride;
    double* lanes = out + line * line_lanes;
    if (l.step == 1) {
      squares_along<1>(x, l.stride, l.terms, lanes);
      continue;
    }
    for (int i = 0; i < line_lanes; ++i) lanes[i] = 0;
    for (std::int64_t k = 0; k < l.terms; ++k) {
      const double value = x[k * l.step];
      lanes[k % line_lanes] += value * value;
    }
  }
}

}  // namespace
}  // namespace potl::numeric::detail

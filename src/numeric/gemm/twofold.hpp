// SPDX-License-Identifier: Apache-2.0
// Sums of products that keep what additions lose, eight side by side, in plain loops that the
// compiler turns into vectors. Everything is local to the including file, as in tile_vector.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numeric/gemm/kernels.hpp"
#include "numeric/gemm/squares.hpp"

namespace potl::numeric::detail {
namespace {

using eight_words = long long __attribute__((vector_size(64)));

inline void add_eight(const float (&a)[twofold::lanes], const float (&b)[twofold::lanes],
                      eight_doubles& sum, eight_doubles& low, eight_words& lost) {
  eight_floats x, y;
  __builtin_memcpy(&x, a, sizeof x);
  __builtin_memcpy(&y, b, sizeof y);
  // Exact in double; then Knuth's two-sum.
  const eight_doubles product =
      __builtin_convertvector(x, eight_doubles) * __builtin_convertvector(y, eight_doubles);
  const eight_doubles next = sum + product;
  const eight_doubles part = next - sum;
  const eight_doubles rest = (sum - (next - part)) + (product - part);
  sum = next;
  low += rest;
  eight_words bits;
  __builtin_memcpy(&bits, &rest, sizeof bits);
  lost |= bits & 0x7fffffffffffffffLL;
}

inline void add_products(const lines& a, const lines& b, twofold& out) {
  eight_doubles sum = {}, low = {};
  eight_words lost = {};
  const bool adjacent = a.step == 1 && b.step == 1;
  for (std::int64_t k = 0; k < a.terms; k += twofold::lanes) {
    float x[twofold::lanes] = {}, y[twofold::lanes] = {};
    if (adjacent && k + twofold::lanes <= a.terms) {
      __builtin_memcpy(&x, a.from + k, sizeof x);
      __builtin_memcpy(&y, b.from + k, sizeof y);
    } else {
      for (int i = 0; i < twofold::lanes && k + i < a.terms; ++i) {
        x[i] = a.from[(k + i) * a.step];
        y[i] = b.from[(k + i) * b.step];
      }
    }
    add_eight(x, y, sum, low, lost);
  }
  __builtin_memcpy(&out.sum, &sum, sizeof sum);
  __builtin_memcpy(&out.low, &low, sizeof low);
  out.exact = true;
  for (std::size_t i = 0; i < twofold::lanes; ++i) out.exact = out.exact && lost[i] == 0;
}

}  // namespace
}  // namespace potl::numeric::detail

// SPDX-License-Identifier: Apache-2.0
// float32 on AVX-512: tiles of 14 x 32, 28 of the 32 registers.
#include <immintrin.h>

#include "numeric/gemm/transpose_avx512.hpp"

namespace potl::numeric::detail {
namespace {

struct vector {
  using value = float;
  using type = __m512;
  using mask = __mmask16;
  static constexpr bool multiplies_memory = true;
  static constexpr bool fetches_next = true;
  static constexpr int width = 16;
  static type zero() { return _mm512_setzero_ps(); }
  static type load(const float* from) { return _mm512_loadu_ps(from); }
  static type load(const float* from, mask lanes) { return _mm512_maskz_loadu_ps(lanes, from); }
  static type broadcast(const float* from) { return _mm512_set1_ps(*from); }
  static type multiply_add(type a, type b, type c) {
    // g++ 12 copies the sums of the intrinsic from register to register, and runs out of them.
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
  }
  // The operand in memory takes no instruction of its own.
  static type multiply_add_at(const float* a, type b, type c) {
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
  }
  static type add(type a, type b) { return _mm512_add_ps(a, b); }
  static void store(float* to, type x) { _mm512_storeu_ps(to, x); }
  static void store(float* to, type x, mask lanes) { _mm512_mask_storeu_ps(to, lanes, x); }
  static void stream(float* to, type x) { _mm512_stream_ps(to, x); }
  static mask first_lanes(int count) { return lanes16(count); }
  static type canonical(type x) {
    const mask nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(_mm512_castps_si512(x), nan, 0x7fc00000));
  }
};

constexpr int rows = 14;
constexpr tile_table<vector, rows, 2> tiles;

void multiply(const tile<float>& t) { tiles.run(t); }

void drain() { _mm_sfence(); }

void pack(const panel<float, float>& p) {
  pack_numbers(
      p, [](float* to, int lanes, __m512 x)
             __attribute__((always_inline)) { _mm512_mask_storeu_ps(to, lanes16(lanes), x); });
}

constexpr kernels_f32 table{rows, 32, multiply, pack, pack, 1, 4, 4, 0, true, drain};

}  // namespace

const kernels_f32& avx512_f32() noexcept { return table; }

}  // namespace potl::numeric::detail

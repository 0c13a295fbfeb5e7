// SPDX-License-Identifier: Apache-2.0
// float32 on AVX2 and FMA: tiles of 6 x 16, 12 of the 16 registers.
#include <immintrin.h>

#include "numeric/gemm/transpose_avx2.hpp"

namespace potl::numeric::detail {
namespace {

struct vector {
  using value = float;
  using type = __m256;
  using mask = __m256i;
  static constexpr bool multiplies_memory = false;
  static constexpr bool fetches_next = false;
  static constexpr int width = 8;
  static type zero() { return _mm256_setzero_ps(); }
  static type load(const float* from) { return _mm256_loadu_ps(from); }
  static type load(const float* from, mask lanes) { return _mm256_maskload_ps(from, lanes); }
  static type broadcast(const float* from) { return _mm256_broadcast_ss(from); }
  static type multiply_add(type a, type b, type c) { return _mm256_fmadd_ps(a, b, c); }
  static type multiply_add_at(const float* a, type b, type c) {
    return multiply_add(broadcast(a), b, c);
  }
  static type add(type a, type b) { return _mm256_add_ps(a, b); }
  static void store(float* to, type x) { _mm256_storeu_ps(to, x); }
  static void store(float* to, type x, mask lanes) { _mm256_maskstore_ps(to, lanes, x); }
  static void stream(float* to, type x) { _mm256_stream_ps(to, x); }
  static mask first_lanes(int count) { return lanes8(count); }
  static type canonical(type x) {
    const type nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)), nan);
  }
};

constexpr int rows = 6;
constexpr tile_table<vector, rows, 2> tiles;

void multiply(const tile<float>& t) { tiles.run(t); }

void drain() { _mm_sfence(); }

void pack(const panel<float, float>& p) {
  pack_blocks(
      p, [&](std::int64_t k, int lane, int lanes, __m256 x) __attribute__((always_inline)) {
        _mm256_maskstore_ps(p.to + k * p.width + lane, lanes8(lanes), x);
      });
}

constexpr kernels_f32 table{rows, 16, multiply, pack, pack, 1, 4, 4, 0, false, drain};

}  // namespace

const kernels_f32& avx2_f32() noexcept { return table; }

}  // namespace potl::numeric::detail

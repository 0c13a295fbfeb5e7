// SPDX-License-Identifier: Apache-2.0
// float64 on AVX2 and FMA: tiles of 6 x 8, and copies that widen float32.
#include <immintrin.h>

#include "numeric/gemm/transpose_avx2.hpp"

namespace potl::numeric::detail {
namespace {

/// All bits of the first `count` of 4 lanes.
__m256i lanes4(int count) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}

struct vector {
  using value = double;
  using type = __m256d;
  using mask = __m256i;
  static constexpr int width = 4;
  static type zero() { return _mm256_setzero_pd(); }
  static type load(const double* from) { return _mm256_loadu_pd(from); }
  static type load(const double* from, mask lanes) { return _mm256_maskload_pd(from, lanes); }
  static type broadcast(const double* from) { return _mm256_broadcast_sd(from); }
  static type multiply_add(type a, type b, type c) { return _mm256_fmadd_pd(a, b, c); }
  static type add(type a, type b) { return _mm256_add_pd(a, b); }
  static void store(double* to, type x) { _mm256_storeu_pd(to, x); }
  static void store(double* to, type x, mask lanes) { _mm256_maskstore_pd(to, lanes, x); }
  static void stream(double* to, type x) { _mm256_stream_pd(to, x); }
  static mask first_lanes(int count) { return lanes4(count); }
  static type canonical(type x) {
    const type nan = _mm256_cmp_pd(x, x, _CMP_UNORD_Q);
    const __m256i quiet = _mm256_set1_epi64x(0x7ff8000000000000);
    return _mm256_blendv_pd(x, _mm256_castsi256_pd(quiet), nan);
  }
};

constexpr int rows = 6;
constexpr tile_table<vector, rows, 2> tiles;

void multiply(const tile<double>& t) { tiles.run(t); }

void pack(const panel<double, double>& p) {
  for (std::int64_t k = 0; k < p.depth; ++k) {
    const double* from = p.from + (p.order == nullptr ? k : p.order[k]) * p.step;
    double* to = p.to + k * p.width;
    for (int lane = 0; lane < p.lanes; ++lane) to[lane] = from[lane * p.lane_stride];
    for (int lane = p.lanes; lane < p.width; ++lane) to[lane] = 0;
  }
}

void widen(const panel<float, double>& p) {
  pack_blocks(
      p, [&](std::int64_t k, int lane, int lanes, __m256 x) __attribute__((always_inline)) {
        double* to = p.to + k * p.width + lane;
        _mm256_maskstore_pd(to, lanes4(lanes), _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
        if (lanes > 4) {
          _mm256_maskstore_pd(to + 4, lanes4(lanes - 4),
                              _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
        }
      });
}

constexpr kernels_f64 table{rows, 8, multiply, pack};
constexpr kernels_widening widening_table{rows, 8, multiply, widen};

}  // namespace

const kernels_f64& avx2_f64() noexcept { return table; }
const kernels_widening& avx2_widening() noexcept { return widening_table; }

}  // namespace potl::numeric::detail

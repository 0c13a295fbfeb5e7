// SPDX-License-Identifier: Apache-2.0
// float64 on AVX-512: tiles of 14 x 16, and copies that widen float32.
#include <immintrin.h>

#include "numeric/gemm/transpose_avx512.hpp"

namespace potl::numeric::detail {
namespace {

__mmask8 lanes8(int count) { return static_cast<__mmask8>(lanes16(count < 8 ? count : 8)); }

struct vector {
  using value = double;
  using type = __m512d;
  using mask = __mmask8;
  static constexpr int width = 8;
  static type zero() { return _mm512_setzero_pd(); }
  static type load(const double* from) { return _mm512_loadu_pd(from); }
  static type load(const double* from, mask lanes) { return _mm512_maskz_loadu_pd(lanes, from); }
  static type broadcast(const double* from) { return _mm512_set1_pd(*from); }
  static type multiply_add(type a, type b, type c) { return _mm512_fmadd_pd(a, b, c); }
  static type add(type a, type b) { return _mm512_add_pd(a, b); }
  static void store(double* to, type x) { _mm512_storeu_pd(to, x); }
  static void store(double* to, type x, mask lanes) { _mm512_mask_storeu_pd(to, lanes, x); }
  static void stream(double* to, type x) { _mm512_stream_pd(to, x); }
  static mask first_lanes(int count) { return lanes8(count); }
  static type canonical(type x) {
    const mask nan = _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q);
    return _mm512_castsi512_pd(
        _mm512_mask_set1_epi64(_mm512_castpd_si512(x), nan, 0x7ff8000000000000));
  }
};

constexpr int rows = 14;
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
      p, [&](std::int64_t k, int lane, int lanes, __m512 x) __attribute__((always_inline)) {
        double* to = p.to + k * p.width + lane;
        _mm512_mask_storeu_pd(to, lanes8(lanes), _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
        if (lanes > 8) {
          _mm512_mask_storeu_pd(to + 8, lanes8(lanes - 8),
                                _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
        }
      });
}

constexpr kernels_f64 table{rows, 16, multiply, pack};
constexpr kernels_widening widening_table{rows, 16, multiply, widen};

}  // namespace

const kernels_f64& avx512_f64() noexcept { return table; }
const kernels_widening& avx512_widening() noexcept { return widening_table; }

}  // namespace potl::numeric::detail

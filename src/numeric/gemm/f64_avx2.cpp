// SPDX-License-Identifier: Apache-2.0
// float64 on AVX2 and FMA: tiles of 6 x 8, and copies that widen float32.
#include <immintrin.h>

#include "numeric/gemm/transpose_avx2.hpp"
#include "numeric/gemm/twofold.hpp"

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
  static constexpr bool multiplies_memory = false;
  static constexpr bool fetches_next = true;
  static constexpr int width = 4;
  static type zero() { return _mm256_setzero_pd(); }
  static type load(const double* from) { return _mm256_loadu_pd(from); }
  static type load(const double* from, mask lanes) { return _mm256_maskload_pd(from, lanes); }
  static type broadcast(const double* from) { return _mm256_broadcast_sd(from); }
  static type multiply_add(type a, type b, type c) { return _mm256_fmadd_pd(a, b, c); }
  static type multiply_add_at(const double* a, type b, type c) {
    return multiply_add(broadcast(a), b, c);
  }
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

void drain() { _mm_sfence(); }

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

constexpr kernels_f64 table{rows, 8, multiply, pack, pack, 1, 8, 8, 0, false, drain};
// Rnd_b before the conversion to float32: round_to() of rounding.hpp, four at a time.
__m256d on_grid(__m256d x, int bits) {
  if (bits == 32) return x;
  const __m256d sign = _mm256_set1_pd(-0.0);
  const __m256d size = _mm256_andnot_pd(sign, x);
  // The power of two below the number; infinity for NaN, which min and max would drop.
  const __m256d power =
      _mm256_and_pd(size, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff0000000000000)));
  const __m256d clamped =
      _mm256_min_pd(_mm256_max_pd(power, _mm256_set1_pd(0x1p-126)), _mm256_set1_pd(0x1p127));
  // 1.5 * 2^52 steps of the grid.
  const __m256i bias = _mm256_set1_epi64x((std::int64_t{52 - (bits - 9)} << 52) | 0x8000000000000);
  const __m256d shift = _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(clamped), bias));
  const __m256d rounded = _mm256_sub_pd(_mm256_add_pd(size, shift), shift);
  return _mm256_or_pd(rounded, _mm256_and_pd(sign, x));
}

std::int64_t round(const rounding& r, place* doubtful) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < r.rows; ++i) {
    const __m256d bound = _mm256_set1_pd(r.row_bound[i]);
    for (std::int64_t j = 0; j < r.columns; j += 4) {
      const int places = static_cast<int>(r.columns - j < 4 ? r.columns - j : 4);
      const __m256i lanes = lanes4(places);
      const __m256d x = _mm256_maskload_pd(r.sums + i * r.sums_row + j, lanes);
      const __m256d w = _mm256_mul_pd(bound, _mm256_maskload_pd(r.column_norm + j, lanes));
      const __m128 low = _mm256_cvtpd_ps(on_grid(_mm256_sub_pd(x, w), r.bits));
      const __m128 high = _mm256_cvtpd_ps(on_grid(_mm256_add_pd(x, w), r.bits));
      const __m128 y = _mm256_cvtpd_ps(on_grid(x, r.bits));
      // Zeros are positive.
      _mm_maskstore_ps(r.y + i * r.y_row + j, _mm256_castsi256_si128(lanes8(places)),
                       _mm_add_ps(y, _mm_setzero_ps()));
      const __m128i equal = _mm_cmpeq_epi32(_mm_castps_si128(low), _mm_castps_si128(high));
      unsigned differ =
          ~static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(equal))) & ((1U << places) - 1);
      for (; differ != 0; differ &= differ - 1) {
        doubtful[count++] = {i, j + __builtin_ctz(differ)};
      }
    }
  }
  return count;
}

constexpr kernels_widening widening_table{
    {rows, 8, multiply, widen, widen}, round, squares, add_products};

}  // namespace

const kernels_f64& avx2_f64() noexcept { return table; }
const kernels_widening& avx2_widening() noexcept { return widening_table; }

}  // namespace potl::numeric::detail

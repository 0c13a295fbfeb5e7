// SPDX-License-Identifier: Apache-2.0
// float64 on AVX-512: tiles of 14 x 16, and copies that widen float32.
#include <immintrin.h>

#include "numeric/gemm/transpose_avx512.hpp"
#include "numeric/gemm/twofold.hpp"

namespace potl::numeric::detail {
namespace {

__mmask8 lanes8(int count) { return static_cast<__mmask8>(lanes16(count < 8 ? count : 8)); }

struct vector {
  using value = double;
  using type = __m512d;
  using mask = __mmask8;
  static constexpr bool multiplies_memory = true;
  static constexpr bool fetches_next = true;
  static constexpr int width = 8;
  static type zero() { return _mm512_setzero_pd(); }
  static type load(const double* from) { return _mm512_loadu_pd(from); }
  static type load(const double* from, mask lanes) { return _mm512_maskz_loadu_pd(lanes, from); }
  static type broadcast(const double* from) { return _mm512_set1_pd(*from); }
  static type multiply_add(type a, type b, type c) {
    // g++ 12 copies the sums of the intrinsic from register to register, and runs out of them.
    __asm__("vfmadd231pd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
    return c;
  }
  // The operand in memory takes no instruction of its own.
  static type multiply_add_at(const double* a, type b, type c) {
    __asm__("vfmadd231pd %2%{1to8%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
  }
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
  pack_numbers(
      p, [](double* to, int lanes, __m512 x) __attribute__((always_inline)) {
        _mm512_mask_storeu_pd(to, lanes8(lanes), _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
        if (lanes > 8) {
          _mm512_mask_storeu_pd(to + 8, lanes8(lanes - 8),
                                _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
        }
      });
}

constexpr kernels_f64 table{rows, 16, multiply, pack, pack, 1, 8, 8, 0, false, drain};
// Rnd_b before the conversion to float32: round_to() of rounding.hpp, eight at a time.
__m512d on_grid(__m512d x, int bits) {
  if (bits == 32) return x;
  const __m512d sign = _mm512_set1_pd(-0.0);
  const __m512i exponent = _mm512_srli_epi64(_mm512_castpd_si512(_mm512_andnot_pd(sign, x)), 52);
  const __m512i clamped = _mm512_min_epi64(
      _mm512_max_epi64(exponent, _mm512_set1_epi64(1023 - 126)), _mm512_set1_epi64(1023 + 127));
  const __m512i place = _mm512_add_epi64(clamped, _mm512_set1_epi64(52 - (bits - 9)));
  const __m512d shift = _mm512_castsi512_pd(
      _mm512_or_epi64(_mm512_slli_epi64(place, 52), _mm512_set1_epi64(0x8000000000000)));
  const __m512d size = _mm512_andnot_pd(sign, x);
  const __m512d rounded = _mm512_sub_pd(_mm512_add_pd(size, shift), shift);
  return _mm512_or_pd(rounded, _mm512_and_pd(sign, x));
}

std::int64_t round(const rounding& r, place* doubtful) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < r.rows; ++i) {
    const __m512d bound = _mm512_set1_pd(r.row_bound[i]);
    for (std::int64_t j = 0; j < r.columns; j += 8) {
      const __mmask8 lanes = lanes8(static_cast<int>(r.columns - j < 8 ? r.columns - j : 8));
      const __m512d x = _mm512_maskz_loadu_pd(lanes, r.sums + i * r.sums_row + j);
      const __m512d w = _mm512_mul_pd(bound, _mm512_maskz_loadu_pd(lanes, r.column_norm + j));
      const __m256 low = _mm512_cvtpd_ps(on_grid(_mm512_sub_pd(x, w), r.bits));
      const __m256 high = _mm512_cvtpd_ps(on_grid(_mm512_add_pd(x, w), r.bits));
      unsigned differ =
          _mm256_mask_cmpneq_epi32_mask(lanes, _mm256_castps_si256(low), _mm256_castps_si256(high));
      // Where both agree, what lies between them is rounded to the same; bounds may be NaN.
      const bool between = (differ | _mm256_cmp_ps_mask(low, low, _CMP_UNORD_Q)) == 0;
      const __m256 y = between ? low : _mm512_cvtpd_ps(on_grid(x, r.bits));
      // Zeros are positive.
      _mm256_mask_storeu_ps(r.y + i * r.y_row + j, lanes, _mm256_add_ps(y, _mm256_setzero_ps()));
      for (; differ != 0; differ &= differ - 1) {
        doubtful[count++] = {i, j + __builtin_ctz(differ)};
      }
    }
  }
  return count;
}

constexpr kernels_widening widening_table{
    {rows, 16, multiply, widen, widen, 1, 8, 8, 0, true}, round, squares, add_products};

}  // namespace

const kernels_f64& avx512_f64() noexcept { return table; }
const kernels_widening& avx512_widening() noexcept { return widening_table; }

}  // namespace potl::numeric::detail

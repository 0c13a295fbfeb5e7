// SPDX-License-Identifier: Apache-2.0
// Integers on AVX2: tiles of 2 x 16 for 24 bits and 3 x 16 for 16 bits.
#include "numeric/gemm/digit_cuts.hpp"
#include "numeric/gemm/largest.hpp"
#include "numeric/gemm/tile_integer.hpp"
#include "numeric/gemm/transpose_avx2.hpp"

namespace potl::numeric::detail {
namespace {

struct vector {
  using type = __m256i;
  using wide = __m256i;
  static constexpr bool multiplies_memory = false;
  static constexpr int width = 8;
  static type zero() { return _mm256_setzero_si256(); }
  static type load(const std::int16_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static type broadcast(const std::int16_t* from) {
    int both = 0;
    __builtin_memcpy(&both, from, sizeof both);
    return _mm256_set1_epi32(both);
  }
  static type add_products(type sum, type a, type b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  }
  static type subtract(type a, type b) { return _mm256_sub_epi32(a, b); }
  static wide widen(type x, int half) {
    return half == 0 ? _mm256_cvtepi32_epi64(_mm256_castsi256_si128(x))
                     : _mm256_cvtepi32_epi64(_mm256_extracti128_si256(x, 1));
  }
  static wide shifted(wide x, int bits) { return _mm256_sll_epi64(x, _mm_cvtsi32_si128(bits)); }
  static wide add(wide a, wide b) { return _mm256_add_epi64(a, b); }
  static wide load(const std::int64_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static void store(std::int64_t* to, wide x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
  }
};

template <class Digits>
void pack_digits(const panel<float, std::int16_t>& p) {
  const __m256i limit = _mm256_set1_epi32(Digits::limit);
  const int plane = 2 * p.width;
  pack_blocks(
      p, [&](std::int64_t k, int lane, int lanes, __m256 x) __attribute__((always_inline)) {
        alignas(32) double scale[8] = {};
        for (int i = 0; i < 8 && lane + i < p.lanes; ++i) scale[i] = p.scale[lane + i];
        const __m128i first = _mm256_cvtpd_epi32(
            _mm256_mul_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_load_pd(scale)));
        const __m128i second = _mm256_cvtpd_epi32(
            _mm256_mul_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)), _mm256_load_pd(scale + 4)));
        __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
        q = _mm256_max_epi32(_mm256_min_epi32(q, limit),
                             _mm256_sub_epi32(_mm256_setzero_si256(), limit));
        const __m256i places = lanes8(lanes);
        std::int16_t* to = p.to + (k / 2) * Digits::count * plane + 2 * lane;
        for (int digit = 0; digit < Digits::count; ++digit) {
          const __m256i d = Digits::cut(q, digit);
          auto* here = reinterpret_cast<int*>(to + digit * plane);
          if (k % 2 == 0) {
            _mm256_maskstore_epi32(here, places, _mm256_and_si256(d, _mm256_set1_epi32(0xffff)));
          } else {
            const __m256i before = _mm256_maskload_epi32(here, places);
            _mm256_maskstore_epi32(here, places, _mm256_or_si256(before, _mm256_slli_epi32(d, 16)));
          }
        }
      });
}

// There is no conversion of int64 to float for vectors here.
std::int64_t scale_sums(const scaling& s, place* doubtful) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    for (std::int64_t j = 0; j < s.columns; ++j) {
      const std::int64_t sum = s.sums[i * s.sums_row + j];
      const double factor = s.row_scale[i] * s.column_scale[j];
      const double y = static_cast<double>(static_cast<float>(sum)) * factor;
      s.y[i * s.y_row + j] = static_cast<float>(y);
      if (sum != 0 && y < 0x1p-126 && y > -0x1p-126) doubtful[count++] = {i, j};
    }
  }
  return count;
}

constexpr integer_tiles<vector, of_24_bits, 2, 2> tiles24;
constexpr integer_tiles<vector, of_16_bits, 3, 2> tiles16;

void multiply24(const integer_tile& t) { tiles24.run(t); }
void multiply16(const integer_tile& t) { tiles16.run(t); }

constexpr kernels_integer table{
    {2, 16, multiply24, pack_digits<cut_24>, pack_digits<cut_24>, 2, 6, 6, integer_chunk_24},
    {3, 16, multiply16, pack_digits<cut_16_rows>, pack_digits<cut_16_columns>, 2, 4, 2,
     integer_chunk},
    scale_sums,
    largest,
    largest_seen};

}  // namespace

const kernels_integer& avx2_integer() noexcept { return table; }

}  // namespace potl::numeric::detail

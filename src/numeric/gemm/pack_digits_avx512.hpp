// SPDX-License-Identifier: Apache-2.0
// Copies of float32 operands into panels of digits (tile_integer.hpp has their order). For files
// compiled for AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "numeric/gemm/digit_cuts.hpp"
#include "numeric/gemm/kernels.hpp"
#include "numeric/gemm/transpose_avx512.hpp"

namespace potl::numeric::detail {
namespace {

// Without optimization g++'s header makes getexp a macro, whose mask changes its sign.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
// s of lines whose factors are 2^s; minus infinity for factors of 0.
inline __m512 exponents(const double* scale, int lines) {
  const __mmask16 mask = lanes16(lines);
  const __m512d low = _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), scale);
  const __m512d high = _mm512_maskz_loadu_pd(static_cast<__mmask8>(mask >> 8), scale + 8);
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(_mm512_getexp_pd(low))),
                            _mm512_cvtpd_ps(_mm512_getexp_pd(high)), 1);
}
#pragma GCC diagnostic pop

// Nothing is rounded before the conversion but what is 0 afterwards.
inline __attribute__((always_inline)) __m512i integers(__m512 x, __m512 exponent) {
  return _mm512_cvtps_epi32(_mm512_scalef_ps(x, exponent));
}

template <class Digits>
inline __attribute__((always_inline)) __m512i limited(__m512i q) {
  const __m512i limit = _mm512_set1_epi32(Digits::limit);
  return _mm512_max_epi32(_mm512_min_epi32(q, limit),
                          _mm512_sub_epi32(_mm512_setzero_si512(), limit));
}

// The neighbours among 16 places: those of `lanes` lie at `at` + their number.
struct place_run {
  std::int64_t at;
  __mmask16 lanes;
};

struct place_runs {
  int count = 0;
  place_run run[16];

  place_runs(int places, std::int64_t first, std::int64_t step) {
    if (step == 1) {
      run[count++] = {first, lanes16(places)};
      return;
    }
    for (int i = 0; i < places && i < 16; ++i)
      run[count++] = {first + i * (step - 1), static_cast<__mmask16>(1U << i)};
  }
  // A run ends where the next place is not the next one in memory.
  place_runs(int places, const std::int64_t* at) {
    const __mmask16 all = lanes16(places);
    const unsigned followed = all >> 1U, last = followed >> 8U;
    const auto breaks = [&](unsigned lanes, const std::int64_t* from) {
      const auto mask = static_cast<__mmask8>(lanes);
      const __m512i next =
          _mm512_add_epi64(_mm512_maskz_loadu_epi64(mask, from), _mm512_set1_epi64(1));
      return static_cast<unsigned>(
          _mm512_mask_cmpneq_epi64_mask(mask, next, _mm512_maskz_loadu_epi64(mask, from + 1)));
    };
    unsigned ends = breaks(followed, at);
    if (last != 0) ends |= breaks(last, at + 8) << 8U;
    unsigned rest = all;
    for (; ends != 0; ends &= ends - 1) {
      const unsigned until = (ends & -ends) * 2 - 1;
      add(at, rest & until);
      rest &= ~until;
    }
    add(at, rest);
  }
  static place_runs of_lanes(const panel<float, std::int16_t>& p, int first) {
    return p.lane_at == nullptr ? place_runs(p.lanes - first, p.at(first), p.lane_stride)
                                : place_runs(p.lanes - first, p.lane_at + first);
  }
  // g++ 12 would make a call of it.
  inline __attribute__((always_inline)) __m512 load(const float* from) const {
    __m512 x = _mm512_maskz_loadu_ps(run[0].lanes, from + run[0].at);
    for (int i = 1; i < count; ++i) x = _mm512_mask_loadu_ps(x, run[i].lanes, from + run[i].at);
    return x;
  }

 private:
  void add(const std::int64_t* at, unsigned lanes) {
    const int first = __builtin_ctz(lanes);
    run[count++] = {at[first] - first, static_cast<__mmask16>(lanes)};
  }
};

// Lanes that are adjacent in memory, or in no order that suits vectors: 16 at a time.
template <class Digits>
inline void pack_across(const panel<float, std::int16_t>& p) {
  const int plane = 2 * p.width;
  for (int lane = 0; lane < p.width && lane < p.lanes; lane += 16) {
    const int filled = p.lanes - lane;
    const __mmask16 places = lanes16(p.width - lane);
    const __m512 exponent = exponents(p.scale + lane, filled);
    const place_runs runs = place_runs::of_lanes(p, lane);
    const auto row = [&](std::int64_t k) __attribute__((always_inline)) {
      if (k >= p.depth) return _mm512_setzero_si512();
      return integers(runs.load(p.from + p.at_term(k)), exponent);
    };
    std::int16_t* to = p.to + 2 * lane;
    for (std::int64_t k = 0; k < p.depth; k += 2) {
      if (p.lane_at == nullptr) __builtin_prefetch(p.from + p.at(lane) + (k + 16) * p.step);
      __m512i even = row(k), odd = row(k + 1);
      if constexpr (Digits::count == 1) {
        // Of each 4 even and 4 odd ones, pairs.
        const __m512i order = _mm512_set4_epi32(0x0f0e0706, 0x0d0c0504, 0x0b0a0302, 0x09080100);
        const __m512i pairs = _mm512_shuffle_epi8(_mm512_packs_epi32(even, odd), order);
        _mm512_mask_storeu_epi32(to, places,
                                 _mm512_max_epi16(pairs, _mm512_set1_epi16(-Digits::limit)));
        to += plane;
        continue;
      }
      even = limited<Digits>(even);
      odd = limited<Digits>(odd);
      for (int digit = 0; digit < Digits::count; ++digit, to += plane) {
        const __m512i upper = _mm512_slli_epi32(Digits::cut(odd, digit), 16);
        _mm512_mask_storeu_epi32(
            to, places, _mm512_mask_blend_epi16(0xaaaaaaaa, Digits::cut(even, digit), upper));
      }
    }
  }
}

// Lanes whose terms are adjacent in memory, most of them: 4 lanes and 16 terms at a time.
template <class Digits>
inline void pack_along(const panel<float, std::int16_t>& p) {
  constexpr int together = 4;
  const int plane = 2 * p.width;
  for (std::int64_t k = 0; k < p.depth; k += 16) {
    const int terms = p.depth - k < 16 ? static_cast<int>(p.depth - k) : 16;
    const place_runs runs =
        p.order == nullptr ? place_runs(terms, k, 1) : place_runs(terms, p.order + k);
    for (int lane = 0; lane < p.width && lane < p.lanes; lane += together) {
      const int filled = p.lanes - lane;
      const __mmask8 places = static_cast<__mmask8>(lanes16(p.width - lane) & 0xf);
      alignas(64) float exponent[16];
      _mm512_store_ps(exponent, exponents(p.scale + lane, filled));
      __m512i q[together];
      POTL_UNROLLED for (int i = 0; i < together; ++i) {
        q[i] = i < filled
                   ? integers(runs.load(p.from + p.at(lane + i)), _mm512_set1_ps(exponent[i]))
                   : _mm512_setzero_si512();
        if constexpr (Digits::count > 1) q[i] = limited<Digits>(q[i]);
      }
      std::int16_t* to = p.to + (k / 2) * Digits::count * plane + 2 * lane;
      POTL_UNROLLED for (int digit = 0; digit < Digits::count; ++digit) {
        // Pairs of terms; then pairs 0 and 4, 1 and 5, 2 and 6, 3 and 7 of all lanes.
        __m256i d[together];
        POTL_UNROLLED for (int i = 0; i < together; ++i) {
          d[i] = Digits::count > 1 ? _mm512_cvtepi32_epi16(Digits::cut(q[i], digit))
                                   : _mm256_max_epi16(_mm512_cvtsepi32_epi16(q[i]),
                                                      _mm256_set1_epi16(-digits_16_columns::limit));
        }
        const __m256i a = _mm256_unpacklo_epi32(d[0], d[1]), b = _mm256_unpackhi_epi32(d[0], d[1]);
        const __m256i c = _mm256_unpacklo_epi32(d[2], d[3]), e = _mm256_unpackhi_epi32(d[2], d[3]);
        const __m256i both[4] = {_mm256_unpacklo_epi64(a, c), _mm256_unpackhi_epi64(a, c),
                                 _mm256_unpacklo_epi64(b, e), _mm256_unpackhi_epi64(b, e)};
        POTL_UNROLLED for (int pair = 0; pair < 8; ++pair) {
          const __m128i four = pair < 4 ? _mm256_castsi256_si128(both[pair])
                                        : _mm256_extracti128_si256(both[pair - 4], 1);
          if (2 * pair < terms)
            _mm_mask_storeu_epi32(to + (pair * Digits::count + digit) * plane, places, four);
        }
      }
    }
  }
}

template <class Digits>
void pack_digits(const panel<float, std::int16_t>& p) {
  if (p.lane_stride != 1 && p.step == 1) return pack_along<Digits>(p);
  pack_across<Digits>(p);
}

}  // namespace
}  // namespace potl::numeric::detail

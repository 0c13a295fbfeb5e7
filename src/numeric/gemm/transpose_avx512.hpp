// SPDX-License-Identifier: Apache-2.0
// Copies of float32 operands into panels, 16 lanes at a time. For files compiled for AVX-512.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "numeric/gemm/tile_vector.hpp"

namespace potl::numeric::detail {
namespace {

inline __mmask16 lanes16(int count) {
  return count >= 16 ? static_cast<__mmask16>(0xffff)
                     : static_cast<__mmask16>((1U << (count < 0 ? 0 : count)) - 1);
}

// Rows of 16 become columns.
inline __attribute__((always_inline)) void transpose(__m512 (&r)[16]) {
  __m512 t[16];
  POTL_UNROLLED for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  POTL_UNROLLED for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  POTL_UNROLLED for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
  }
  POTL_UNROLLED for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    r[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    r[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    r[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

// Calls store(k, lane, lanes, values) for 16 or fewer lanes at a time.
template <class Value, class Store>
inline __attribute__((always_inline)) void pack_blocks(const panel<float, Value>& p,
                                                       const Store& store) {
  for (int lane = 0; lane < p.width; lane += 16) {
    const int places = p.width - lane < 16 ? p.width - lane : 16;
    const int filled = p.lanes - lane < places ? p.lanes - lane : places;
    const float* from = p.from + lane * p.lane_stride;
    if (filled <= 0) {
      for (std::int64_t k = 0; k < p.depth; ++k) store(k, lane, places, _mm512_setzero_ps());
    } else if (p.lane_stride == 1) {
      const __mmask16 mask = lanes16(filled);
      for (std::int64_t k = 0; k < p.depth; ++k) {
        const std::int64_t at = p.order == nullptr ? k : p.order[k];
        __builtin_prefetch(from + (at + 16) * p.step);
        store(k, lane, places, _mm512_maskz_loadu_ps(mask, from + at * p.step));
      }
    } else if (p.step == 1 && p.order == nullptr) {
      for (std::int64_t k = 0; k < p.depth; k += 16) {
        const int count = p.depth - k < 16 ? static_cast<int>(p.depth - k) : 16;
        const __mmask16 mask = lanes16(count);
        __m512 r[16];
        POTL_UNROLLED for (int i = 0; i < 16; ++i) {
          r[i] = i < filled ? _mm512_maskz_loadu_ps(mask, from + i * p.lane_stride + k)
                            : _mm512_setzero_ps();
        }
        transpose(r);
        if (count == 16) {
          POTL_UNROLLED for (int i = 0; i < 16; ++i) store(k + i, lane, places, r[i]);
        } else {
          POTL_UNROLLED for (int i = 0; i < 16; ++i) {
            if (i < count) store(k + i, lane, places, r[i]);
          }
        }
      }
    } else {
      for (std::int64_t k = 0; k < p.depth; ++k) {
        const float* row = from + (p.order == nullptr ? k : p.order[k]) * p.step;
        alignas(64) float values[16] = {};
        for (int i = 0; i < filled; ++i) values[i] = row[i * p.lane_stride];
        store(k, lane, places, _mm512_load_ps(values));
      }
    }
  }
}

// Rows of several panels: each is read once from end to end, and fetched some rows before.
template <class Value, class Store>
inline __attribute__((always_inline)) void pack_across(const panel<float, Value>& p,
                                                       const Store& store) {
  constexpr std::int64_t ahead = 8;
  for (std::int64_t k = 0; k < p.depth; ++k) {
    const float* row = p.from + (p.order == nullptr ? k : p.order[k]) * p.step;
    const float* next = row + ahead * p.step;
    Value* to = p.to + k * p.width;
    for (int first = 0; first < p.lanes; first += p.width, to += p.next_panel) {
      for (int lane = 0; lane < p.width; lane += 16) {
        const int filled = p.lanes - first - lane, places = p.width - lane;
        __builtin_prefetch(next + first + lane);
        store(to + lane, places < 16 ? places : 16,
              _mm512_maskz_loadu_ps(lanes16(filled), row + first + lane));
      }
    }
  }
}

// Calls store(to, lanes, values), for panels of numbers in the order of their lanes.
template <class Value, class Store>
inline __attribute__((always_inline)) void pack_numbers(const panel<float, Value>& p,
                                                        const Store& store) {
  if (p.next_panel != 0) return pack_across(p, store);
  pack_blocks(
      p, [&](std::int64_t k, int lane, int lanes, __m512 x)
             __attribute__((always_inline)) { store(p.to + k * p.width + lane, lanes, x); });
}

}  // namespace
}  // namespace potl::numeric::detail

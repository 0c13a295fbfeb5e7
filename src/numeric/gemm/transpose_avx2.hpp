// SPDX-License-Identifier: Apache-2.0
// Copies of float32 operands into panels, 8 lanes at a time. For files compiled for AVX2.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "numeric/gemm/tile_vector.hpp"

namespace potl::numeric::detail {
namespace {

/// All bits of the first `count` of 8 lanes.
inline __m256i lanes8(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// Rows of 8 become columns.
inline __attribute__((always_inline)) void transpose(__m256 (&r)[8]) {
  __m256 t[8];
  POTL_UNROLLED for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  POTL_UNROLLED for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  POTL_UNROLLED for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
  POTL_UNROLLED for (int i = 0; i < 8; ++i) r[i] = t[i];
}

// Calls store(k, lane, lanes, values) for 8 or fewer lanes at a time.
template <class Value, class Store>
inline __attribute__((always_inline)) void pack_blocks(const panel<float, Value>& p,
                                                       const Store& store) {
  for (int lane = 0; lane < p.width; lane += 8) {
    const int places = p.width - lane < 8 ? p.width - lane : 8;
    const int filled = p.lanes - lane < places ? p.lanes - lane : places;
    const float* from = p.from + (filled <= 0 ? 0 : p.at(lane));
    if (filled <= 0) {
      for (std::int64_t k = 0; k < p.depth; ++k) store(k, lane, places, _mm256_setzero_ps());
    } else if (p.lane_stride == 1 && p.at(lane + filled - 1) - p.at(lane) == filled - 1) {
      const __m256i mask = lanes8(filled);
      for (std::int64_t k = 0; k < p.depth; ++k)
        store(k, lane, places, _mm256_maskload_ps(from + p.at_term(k), mask));
    } else if (p.step == 1 && p.order == nullptr && p.lane_at == nullptr) {
      for (std::int64_t k = 0; k < p.depth; k += 8) {
        const int count = p.depth - k < 8 ? static_cast<int>(p.depth - k) : 8;
        const __m256i mask = lanes8(count);
        __m256 r[8];
        POTL_UNROLLED for (int i = 0; i < 8; ++i) {
          r[i] = i < filled ? _mm256_maskload_ps(from + i * p.lane_stride + k, mask)
                            : _mm256_setzero_ps();
        }
        transpose(r);
        POTL_UNROLLED for (int i = 0; i < 8; ++i) {
          if (i < count) store(k + i, lane, places, r[i]);
        }
      }
    } else {
      for (std::int64_t k = 0; k < p.depth; ++k) {
        const float* row = p.from + p.at_term(k);
        alignas(32) float values[8] = {};
        for (int i = 0; i < filled; ++i) values[i] = row[p.at(lane + i)];
        store(k, lane, places, _mm256_load_ps(values));
      }
    }
  }
}

}  // namespace
}  // namespace potl::numeric::detail

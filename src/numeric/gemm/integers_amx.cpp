// SPDX-License-Identifier: Apache-2.0
// Integers on AMX: blocks of 16 x 16 sums, 64 k at a time, of products of bytes.
//
// An integer is cut into its bytes: those below have no sign, the uppermost has one. The processor
// multiplies either kind, so that nothing is carried from byte to byte. Products of the same weight
// are added in one tile of int32, of which 24 bits take five: at most three products for each k, of
// 255 * 255 and twice 128 * 255, so that 16384 k would fit. Tiles hold
//   rows     of 16 lines of A, 64 k of one byte side by side: panels are [64 k][byte][line][k];
//   columns  of 16 fours of k, each four side by side:        panels are [4 k][byte][column][k].
// Either is the other with fours of bytes transposed. Where k end before a whole 64, rows are
// filled with 0, and columns with anything.
#include "numeric/gemm/integers_avx512.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

namespace potl::numeric::detail {
namespace {

constexpr int side = 16, block = side * side, tile_terms = 64, tile_bytes = side * tile_terms;
constexpr int amx_columns = 64;
constexpr std::int64_t amx_chunk = 512;
static_assert(amx_chunk % tile_terms == 0);
static_assert(amx_chunk * (255 * 255 + 2 * 128 * 255) < std::int64_t{1} << 31);

// What `ldtilecfg` reads: eight tiles of 16 rows and 64 bytes.
struct alignas(64) tile_shapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(tile_shapes) == 64);
constexpr tile_shapes shapes{};

struct bytes_of_24 {
  static constexpr int bytes = 3, sums = 5, limit = (1 << 23) - 1;
  static inline __attribute__((always_inline)) void clear() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
  }
  // Bytes are 0, 1 and 2 from the lowest. A sum is added to after two others at the earliest.
  static inline __attribute__((always_inline)) void add(const std::uint8_t* a,
                                                        const std::uint8_t* b) {
    constexpr int b_row = bytes * 64;
    _tile_loadd(5, a, 64);
    _tile_loadd(6, b, b_row);
    _tile_dpbuud(0, 5, 6);  // 0 0
    _tile_loadd(7, b + 64, b_row);
    _tile_dpbuud(1, 5, 7);  // 0 1
    _tile_loadd(5, a + 2 * tile_bytes, 64);
    _tile_dpbsud(2, 5, 6);  // 2 0
    _tile_dpbsud(3, 5, 7);  // 2 1
    _tile_loadd(5, a + tile_bytes, 64);
    _tile_dpbuud(1, 5, 6);  // 1 0
    _tile_dpbuud(2, 5, 7);  // 1 1
    _tile_loadd(6, b + 128, b_row);
    _tile_dpbusd(3, 5, 6);  // 1 2
    _tile_loadd(5, a + 2 * tile_bytes, 64);
    _tile_dpbssd(4, 5, 6);  // 2 2
    _tile_loadd(5, a, 64);
    _tile_dpbusd(2, 5, 6);  // 0 2
  }
  static inline __attribute__((always_inline)) void store(std::int32_t* to) {
    _tile_stored(0, to, 64);
    _tile_stored(1, to + block, 64);
    _tile_stored(2, to + 2 * block, 64);
    _tile_stored(3, to + 3 * block, 64);
    _tile_stored(4, to + 4 * block, 64);
  }
};

struct bytes_of_16 {
  static constexpr int bytes = 2, sums = 4, limit = (1 << 15) - 1;
  static inline __attribute__((always_inline)) void clear() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  static inline __attribute__((always_inline)) void add(const std::uint8_t* a,
                                                        const std::uint8_t* b) {
    constexpr int b_row = bytes * 64;
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, b_row);
    _tile_dpbuud(0, 4, 6);
    _tile_loadd(7, b + 64, b_row);
    _tile_dpbusd(1, 4, 7);
    _tile_loadd(5, a + tile_bytes, 64);
    _tile_dpbsud(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  static inline __attribute__((always_inline)) void store(std::int32_t* to) {
    _tile_stored(0, to, 64);
    _tile_stored(1, to + block, 64);
    _tile_stored(2, to + 2 * block, 64);
    _tile_stored(3, to + 3 * block, 64);
  }
};

// The exact sums of eight elements, from those of products of each weight.
template <class Digits>
inline __attribute__((always_inline)) __m512i joined(const std::int32_t* sums) {
  const auto eight = [&](int i) __attribute__((always_inline)) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(sums + i * block));
  };
  const auto wide = [&](int i) __attribute__((always_inline)) {
    return _mm512_cvtepi32_epi64(eight(i));
  };
  if constexpr (Digits::bytes == 2) {
    const __m512i middle = _mm512_cvtepi32_epi64(_mm256_add_epi32(eight(1), eight(2)));
    return _mm512_add_epi64(_mm512_add_epi64(_mm512_slli_epi64(wide(3), 16), wide(0)),
                            _mm512_slli_epi64(middle, 8));
  } else {
    __m512i sum = wide(4);
    POTL_UNROLLED for (int i = 3; i >= 0; --i) {
      sum = _mm512_add_epi64(_mm512_slli_epi64(sum, 8), wide(i));
    }
    return sum;
  }
}

// Rows of a block that are not in C yet.
template <class Digits>
struct rows_to_join {
  const std::int32_t* sums = nullptr;
  std::int64_t* c = nullptr;
  int rows = 0;

  inline __attribute__((always_inline)) void join(const integer_tile& t, int count) {
    for (; count > 0 && rows > 0; --count, --rows, sums += side, c += t.c_row) {
      POTL_UNROLLED for (int j = 0; j < side; j += 8) {
        __m512i sum = joined<Digits>(sums + j);
        if (!t.first) sum = _mm512_add_epi64(sum, _mm512_loadu_si512(c + j));
        _mm512_storeu_si512(c + j, sum);
      }
    }
  }
};

// Tiles are the processor's state of the thread only in here: nobody else sees them changed. While
// they multiply a block, vectors join the sums of the block before.
template <class Digits>
void multiply_bytes(const integer_tile& t) {
  constexpr std::int64_t b_step = amx_columns * Digits::bytes * tile_terms;
  const auto steps = static_cast<int>((t.depth + tile_terms - 1) / tile_terms);
  const int rows_each = (side + steps - 1) / steps;
  alignas(64) std::int32_t sums[2][Digits::sums * block];
  rows_to_join<Digits> before;
  _tile_loadconfig(&shapes);
  for (int column = 0; column < t.columns; column += side) {
    const auto* a = reinterpret_cast<const std::uint8_t*>(t.a);
    const auto* b =
        reinterpret_cast<const std::uint8_t*>(t.b) + column * Digits::bytes * tile_terms;
    Digits::clear();
    for (int i = 0; i < steps; ++i, a += Digits::bytes * tile_bytes, b += b_step) {
      Digits::add(a, b);
      before.join(t, rows_each);
    }
    std::int32_t* const here = sums[column / side % 2];
    Digits::store(here);
    before = {here, t.c + column, t.rows};
  }
  _tile_release();
  before.join(t, side);
}

// Of 16 lanes the bytes of four integers, the first the lowest in each lane.
template <class Digits>
inline __attribute__((always_inline)) void cut(const __m512i (&q)[4],
                                               __m512i (&bytes)[Digits::bytes]) {
  constexpr __mmask32 odd = 0xaaaaaaaa;
  constexpr __mmask64 odd_bytes = 0xaaaaaaaaaaaaaaaa;
  const __m512i even = _mm512_mask_blend_epi16(odd, q[0], _mm512_slli_epi32(q[2], 16));
  const __m512i next = _mm512_mask_blend_epi16(odd, q[1], _mm512_slli_epi32(q[3], 16));
  bytes[0] = _mm512_mask_blend_epi8(odd_bytes, even, _mm512_slli_epi16(next, 8));
  bytes[1] = _mm512_mask_blend_epi8(odd_bytes, _mm512_srli_epi16(even, 8), next);
  if constexpr (Digits::bytes == 3) {
    const __m512i upper = _mm512_mask_blend_epi16(odd, _mm512_srli_epi32(q[0], 16), q[2]);
    const __m512i beside = _mm512_mask_blend_epi16(odd, _mm512_srli_epi32(q[1], 16), q[3]);
    bytes[2] = _mm512_mask_blend_epi8(odd_bytes, upper, _mm512_slli_epi16(beside, 8));
  }
}

// Bytes 0, 4, 8 ..., then 1, 5, 9 ...
inline __attribute__((always_inline)) __m512i in_order(__m512i fours) {
  const __m512i lane = _mm512_set4_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400);
  const __m512i whole = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(whole, _mm512_shuffle_epi8(fours, lane));
}

inline __attribute__((always_inline)) void transpose(const __m512i* from, std::uint8_t* to,
                                                     std::int64_t step) {
  __m512 r[side];
  POTL_UNROLLED for (int i = 0; i < side; ++i) r[i] = _mm512_castsi512_ps(from[i]);
  transpose(r);
  POTL_UNROLLED for (int i = 0; i < side; ++i) {
    _mm512_storeu_si512(to + i * step, _mm512_castps_si512(r[i]));
  }
}

enum class panel_side { rows, columns };

// 64 terms of 16 lanes. Where terms are adjacent in memory, a vector has those of one lane, else
// four of each lane.
template <class Digits, panel_side Side, bool Along, class Load>
inline __attribute__((always_inline)) void pack_block(int vectors, const Load& load,
                                                      std::uint8_t* to) {
  constexpr bool is_rows = Side == panel_side::rows;
  constexpr int byte_step = is_rows ? tile_bytes : 64, step = is_rows ? 64 : Digits::bytes * 64;
  __m512i aside[Digits::bytes][side];
  for (int i = 0; i < side; ++i) {
    __m512i bytes[Digits::bytes] = {};
    if (i < vectors) {
      __m512i q[4];
      load(i, q);
      POTL_UNROLLED for (int j = 0; j < 4; ++j) q[j] = limited<Digits>(q[j]);
      cut<Digits>(q, bytes);
    }
    POTL_UNROLLED for (int d = 0; d < Digits::bytes; ++d) {
      if constexpr (Along) bytes[d] = in_order(bytes[d]);
      if constexpr (Along == is_rows) {
        _mm512_storeu_si512(to + d * byte_step + i * step, bytes[d]);
      } else {
        aside[d][i] = bytes[d];
      }
    }
  }
  if constexpr (Along != is_rows) {
    for (int d = 0; d < Digits::bytes; ++d) transpose(aside[d], to + d * byte_step, step);
  }
}

template <class Digits, panel_side Side>
void pack_bytes(const panel<float, std::int16_t>& p) {
  auto* to = reinterpret_cast<std::uint8_t*>(p.to);
  for (std::int64_t k = 0; k < p.depth; k += tile_terms) {
    const int terms = p.depth - k < tile_terms ? static_cast<int>(p.depth - k) : tile_terms;
    for (int lane = 0; lane < p.width; lane += side, to += Digits::bytes * tile_bytes) {
      const int filled = p.lanes - lane < side ? p.lanes - lane : side;
      if (filled <= 0) continue;
      const __m512 exponent = exponents(p.scale + lane, filled);
      if (p.lane_stride != 1 && p.step == 1) {
        alignas(64) float of_lane[side];
        _mm512_store_ps(of_lane, exponent);
        const auto runs = [&](int first) {
          // Where no terms are left, there is no place to read.
          return p.order == nullptr || first >= terms
                     ? place_runs(terms - first, k + first, 1)
                     : place_runs(terms - first, p.order + k + first);
        };
        const place_runs of_terms[4] = {runs(0), runs(16), runs(32), runs(48)};
        const auto load = [&](int i, __m512i(&q)[4]) __attribute__((always_inline)) {
          const float* const from = p.from + p.at(lane + i);
          POTL_UNROLLED for (int j = 0; j < 4; ++j) {
            q[j] = integers(of_terms[j].load(from), _mm512_set1_ps(of_lane[i]));
          }
        };
        pack_block<Digits, Side, true>(filled, load, to);
      } else {
        const place_runs of_lanes = place_runs::of_lanes(p, lane);
        const auto load = [&](int i, __m512i(&q)[4]) __attribute__((always_inline)) {
          POTL_UNROLLED for (int j = 0; j < 4; ++j) {
            const std::int64_t term = k + 4 * i + j;
            q[j] = 4 * i + j < terms ? integers(of_lanes.load(p.from + p.at_term(term)), exponent)
                                     : _mm512_setzero_si512();
          }
        };
        pack_block<Digits, Side, false>((terms + 3) / 4, load, to);
      }
    }
  }
}

template <class Digits>
constexpr kernels_scaled tiles_of_bytes{side,
                                        amx_columns,
                                        multiply_bytes<Digits>,
                                        pack_bytes<Digits, panel_side::rows>,
                                        pack_bytes<Digits, panel_side::columns>,
                                        tile_terms,
                                        Digits::bytes,
                                        Digits::bytes,
                                        amx_chunk};

constexpr kernels_integer table{tiles_of_bytes<bytes_of_24>, tiles_of_bytes<bytes_of_16>,
                                scale_sums, largest, largest_seen};

}  // namespace

const kernels_integer& amx_integer() noexcept { return table; }

}  // namespace potl::numeric::detail

#pragma GCC diagnostic pop

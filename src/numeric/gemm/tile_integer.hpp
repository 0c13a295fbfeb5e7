// SPDX-License-Identifier: Apache-2.0
// Tiles of exact integer products, for any vector of int32 that can add the products of two pairs
// of int16. Include it in a file that is compiled for one instruction set, as tile_vector.hpp.
//
// An integer is cut into digits of 16 bits or fewer. Panels hold, for each pair of adjacent k, the
// digits of one kind of all lanes, then those of the next kind; both k of a lane are side by side.
//   24 bits: q = 4096 h + l with |l| <= 2048, |h| <= 2048, and m = h + l. Three products of digits
//   instead of four: a b = 2^24 ha hb + 2^12 (ma mb - ha hb - la lb) + la lb (Karatsuba).
//   16 bits: columns whole, rows q = 256 h + l with |l| <= 128, |h| <= 128.
// Sums of products of digits over `integer_chunk` k fit into int32: 256 * 2^22, 2^31 for the middle
// one, reached below zero only; that of m may wrap, its difference to the others does not. For 16
// bits 256 * 2^15 * 2^7.
#pragma once

#include <cstdint>

#include "numeric/gemm/digits.hpp"
#include "numeric/gemm/kernels.hpp"
#include "numeric/gemm/tile_vector.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

namespace potl::numeric::detail {
namespace {

using integer_tile = tile<std::int16_t, std::int64_t>;

// C (+)= the sum of 2^shift times the vectors, for one vector of 32-bit sums.
template <class Vector>
inline __attribute__((always_inline)) void add_sums(std::int64_t* c, bool first,
                                                    const typename Vector::type (&parts)[3],
                                                    int count, int shift) {
  POTL_UNROLLED for (int half = 0; half < 2; ++half) {
    typename Vector::wide sum = Vector::widen(parts[0], half);
    for (int i = 1; i < count; ++i) {
      sum = Vector::add(Vector::shifted(sum, shift), Vector::widen(parts[i], half));
    }
    std::int64_t* to = c + half * Vector::width / 2;
    if (!first) sum = Vector::add(sum, Vector::load(to));
    Vector::store(to, sum);
  }
}

// Which digit of A meets which of B, and how the sums of products make one.
struct of_24_bits {
  static constexpr int products = 3, b_digits = 3;
  template <class Vector>
  static inline __attribute__((always_inline)) void finish(
      std::int64_t* c, bool first, const typename Vector::type (&sum)[products]) {
    const typename Vector::type parts[3] = {
        sum[0], Vector::subtract(Vector::subtract(sum[2], sum[0]), sum[1]), sum[1]};
    add_sums<Vector>(c, first, parts, 3, 12);
  }
};

struct of_16_bits {
  static constexpr int products = 2, b_digits = 1;
  template <class Vector>
  static inline __attribute__((always_inline)) void finish(
      std::int64_t* c, bool first, const typename Vector::type (&sum)[products]) {
    const typename Vector::type parts[3] = {sum[0], sum[1], sum[1]};
    add_sums<Vector>(c, first, parts, 2, 8);
  }
};

// MostRows and MostVectors are those of the panels, Rows and Vectors those of the tile.
template <class Vector, class Digits, int MostRows, int MostVectors, int Rows, int Vectors>
__attribute__((noinline)) void multiply_digits(const integer_tile& t) {
  typename Vector::type sum[Digits::products][Rows][Vectors];
  POTL_UNROLLED for (int p = 0; p < Digits::products; ++p) {
    POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
      POTL_UNROLLED for (int j = 0; j < Vectors; ++j) sum[p][i][j] = Vector::zero();
    }
  }
  constexpr int b_digit = MostVectors * Vector::width * 2, b_step = Digits::b_digits * b_digit;
  constexpr int a_digit = MostRows * 2, a_step = Digits::products * a_digit;
  const std::int16_t *a = t.a, *b = t.b;
  const auto step = [&](int pair) __attribute__((always_inline)) {
    POTL_UNROLLED for (int p = 0; p < Digits::products; ++p) {
      typename Vector::type row[Vectors];
      POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
        row[j] = Vector::load(b + pair * b_step + p % Digits::b_digits * b_digit +
                              j * Vector::width * 2);
      }
      POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
        const std::int16_t* from = a + pair * a_step + p * a_digit + 2 * i;
        if constexpr (Vector::multiplies_memory) {
          if (i % 2 == 1) {
            POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
              sum[p][i][j] = Vector::add_products_at(sum[p][i][j], from, row[j]);
            }
            continue;
          }
        }
        const typename Vector::type x = Vector::broadcast(from);
        POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
          sum[p][i][j] = Vector::add_products(sum[p][i][j], x, row[j]);
        }
      }
    }
  };
  const auto* next = static_cast<const char*>(t.next_b.from == nullptr ? a : t.next_b.from);
  const std::int64_t next_bytes = 4 * t.next_b.step;
  std::int64_t pairs = (t.depth + 1) / 2;
  for (; pairs >= 2; pairs -= 2) {
    __builtin_prefetch(next, 0, 2);
    next += next_bytes;
    step(0);
    step(1);
    a += 2 * a_step;
    b += 2 * b_step;
  }
  if (pairs > 0) step(0);
  POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
      typename Vector::type parts[Digits::products];
      POTL_UNROLLED for (int p = 0; p < Digits::products; ++p) parts[p] = sum[p][i][j];
      Digits::template finish<Vector>(t.c + i * t.c_row + j * Vector::width, t.first, parts);
    }
  }
}

/// entry[vectors - 1][rows - 1].
template <class Vector, class Digits, int MostRows, int MostVectors>
struct integer_tiles {
  void (*entry[MostVectors][MostRows])(const integer_tile&);

  constexpr integer_tiles() : entry() { fill<1, 1>(); }

  void run(const integer_tile& t) const {
    entry[(t.columns + Vector::width - 1) / Vector::width - 1][t.rows - 1](t);
  }

 private:
  template <int Vectors, int Rows>
  constexpr void fill() {
    entry[Vectors - 1][Rows - 1] =
        multiply_digits<Vector, Digits, MostRows, MostVectors, Rows, Vectors>;
    if constexpr (Rows < MostRows) {
      fill<Vectors, Rows + 1>();
    } else if constexpr (Vectors < MostVectors) {
      fill<Vectors + 1, 1>();
    }
  }
};

}  // namespace
}  // namespace potl::numeric::detail

#pragma GCC diagnostic pop

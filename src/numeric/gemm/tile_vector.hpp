// SPDX-License-Identifier: Apache-2.0
// Tiles of a product in vector registers, for any vector type. Include it in a file that is
// compiled for one instruction set, after the vector's definition: everything here is local to that
// file, and nothing of the standard library is instantiated, so that the linker is offered no
// symbol that would then run on every processor.
#pragma once

#include <cstdint>

#include "numeric/gemm/kernels.hpp"

// Arrays of vectors become registers only when their loops are unrolled entirely.
#if defined(__clang__)
#define POTL_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define POTL_UNROLLED _Pragma("GCC unroll 64")
#endif

// g++ 12 warns of array bounds that are template parameters of type int.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

namespace potl::numeric::detail {
namespace {

template <class Vector, int Rows, int Vectors>
inline __attribute__((always_inline)) void store_sums(const tile<typename Vector::value>& t,
                                                      typename Vector::type (&sum)[Rows][Vectors],
                                                      typename Vector::mask mask) {
  using value = typename Vector::value;
  if (t.streamed) {
    POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
      POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
        Vector::stream(t.c + i * t.c_row + j * Vector::width, Vector::canonical(sum[i][j]));
      }
    }
    return;
  }
  // Copied: the compiler cannot know that stores leave the tile's description alone.
  const bool first = t.first, last = t.last;
  value* row = t.c;
  const std::int64_t c_row = t.c_row;
  POTL_UNROLLED for (int i = 0; i < Rows; ++i, row += c_row) {
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
      value* c = row + j * Vector::width;
      typename Vector::type x = sum[i][j];
      if (j + 1 < Vectors) {
        if (!first) x = Vector::add(Vector::load(c), x);
        if (last) x = Vector::canonical(x);
        Vector::store(c, x);
      } else {
        if (!first) x = Vector::add(Vector::load(c, mask), x);
        if (last) x = Vector::canonical(x);
        Vector::store(c, x, mask);
      }
    }
  }
}

// C is fetched while the chain runs.
template <class Vector, int Rows, int Vectors>
inline __attribute__((always_inline)) void prefetch_c(const tile<typename Vector::value>& t) {
  if (t.streamed) return;
  POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
      __builtin_prefetch(t.c + i * t.c_row + j * Vector::width, 1);
    }
  }
}

// One k: `at(i)` is A[i][k].
template <class Vector, int Rows, int Vectors, bool Masked, class At>
inline __attribute__((always_inline)) void add_products(
    const typename Vector::value* b, typename Vector::mask mask, const At& at,
    typename Vector::type (&sum)[Rows][Vectors]) {
  typename Vector::type row[Vectors];
  POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
    if (Masked && j + 1 == Vectors) {
      row[j] = Vector::load(b + j * Vector::width, mask);
    } else {
      row[j] = Vector::load(b + j * Vector::width);
    }
  }
  POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
    const typename Vector::type x = Vector::broadcast(at(i));
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
      sum[i][j] = Vector::multiply_add(x, row[j], sum[i][j]);
    }
  }
}

// A in columns: element (i, k) at a[k * a_step + i].
template <class Vector, int Rows, int Vectors, bool Masked>
__attribute__((noinline)) void multiply_columns(const tile<typename Vector::value>& t) {
  using value = typename Vector::value;
  typename Vector::type sum[Rows][Vectors];
  POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) sum[i][j] = Vector::zero();
  }
  prefetch_c<Vector, Rows, Vectors>(t);
  const auto mask = Vector::first_lanes(t.columns - (Vectors - 1) * Vector::width);
  const value *a = t.a, *b = t.b;
  const std::int64_t a_step = t.a_step, b_step = t.b_step;
  // Without a hint, rows of B that come soon.
  const auto* ahead = reinterpret_cast<const char*>(b + 8 * b_step);
  const std::int64_t step = b_step * std::int64_t{sizeof(value)};
  const auto* next_a = ahead + (Vectors - 1) * Vector::width * std::int64_t{sizeof(value)};
  const char* next_b = ahead;
  std::int64_t a_bytes = step, b_bytes = step;
  if (t.next_a.from != nullptr) {
    next_a = static_cast<const char*>(t.next_a.from);
    a_bytes = t.next_a.step;
  }
  if (t.next_b.from != nullptr) {
    next_b = static_cast<const char*>(t.next_b.from);
    b_bytes = t.next_b.step;
  }
  for (std::int64_t k = 0; k < t.depth; ++k) {
    if constexpr (Vector::fetches_next) {
      __builtin_prefetch(next_a, 0, 2);
      __builtin_prefetch(next_b, 0, 2);
      next_a += a_bytes;
      next_b += b_bytes;
    } else {
      POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
        __builtin_prefetch(b + 8 * b_step + j * Vector::width);
      }
    }
    add_products<Vector, Rows, Vectors, Masked>(
        b, mask, [a](int i) __attribute__((always_inline)) { return a + i; }, sum);
    a += a_step;
    b += b_step;
  }
  store_sums<Vector, Rows, Vectors>(t, sum, mask);
}

// Whole vectors of B and columns of A, both from panels: element (i, k) at a[k * AStep + i].
// Nothing but products and loads: where a neighbour shares the core, instructions are what is
// scarce.
template <class Vector, int Rows, int Vectors, int AStep, int BStep>
__attribute__((noinline)) void multiply_panels(const tile<typename Vector::value>& t) {
  using value = typename Vector::value;
  constexpr int together = 4;
  typename Vector::type sum[Rows][Vectors];
  POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) sum[i][j] = Vector::zero();
  }
  prefetch_c<Vector, Rows, Vectors>(t);
  const value *a = t.a, *b = t.b;
  const auto* next_a = static_cast<const char*>(t.next_a.from == nullptr ? a : t.next_a.from);
  const auto* next_b = static_cast<const char*>(t.next_b.from == nullptr ? a : t.next_b.from);
  const std::int64_t a_bytes = together * t.next_a.step, b_bytes = together * t.next_b.step;
  const auto step = [&](int k) __attribute__((always_inline)) {
    typename Vector::type row[Vectors];
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
      row[j] = Vector::load(b + k * BStep + j * Vector::width);
    }
    POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
      const value* const x = a + k * AStep + i;
      if (Vector::multiplies_memory && i % 4 != 0) {
        POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
          sum[i][j] = Vector::multiply_add_at(x, row[j], sum[i][j]);
        }
        continue;
      }
      const typename Vector::type all = Vector::broadcast(x);
      POTL_UNROLLED for (int j = 0; j < Vectors; ++j) {
        sum[i][j] = Vector::multiply_add(all, row[j], sum[i][j]);
      }
    }
  };
  std::int64_t k = 0;
  for (; k + together <= t.depth; k += together) {
    __builtin_prefetch(next_a, 0, 2);
    __builtin_prefetch(next_a + 64, 0, 2);
    __builtin_prefetch(next_b, 0, 2);
    __builtin_prefetch(next_b + 64, 0, 2);
    next_a += a_bytes;
    next_b += b_bytes;
    POTL_UNROLLED for (int one = 0; one < together; ++one) step(one);
    a += together * AStep;
    b += together * BStep;
  }
  for (; k < t.depth; ++k) {
    step(0);
    a += AStep;
    b += BStep;
  }
  store_sums<Vector, Rows, Vectors>(t, sum,
                                    Vector::first_lanes(t.columns - (Vectors - 1) * Vector::width));
}

// A in rows: element (i, k) at a[i * a_row + k]. One pointer for four rows, and two offsets: one
// pointer per row would not leave enough registers.
template <class Vector, int Rows, int Vectors, bool Masked>
__attribute__((noinline)) void multiply_rows(const tile<typename Vector::value>& t) {
  using value = typename Vector::value;
  constexpr int groups = (Rows + 3) / 4;
  typename Vector::type sum[Rows][Vectors];
  POTL_UNROLLED for (int i = 0; i < Rows; ++i) {
    POTL_UNROLLED for (int j = 0; j < Vectors; ++j) sum[i][j] = Vector::zero();
  }
  prefetch_c<Vector, Rows, Vectors>(t);
  const auto mask = Vector::first_lanes(t.columns - (Vectors - 1) * Vector::width);
  const value* group[groups];
  POTL_UNROLLED for (int g = 0; g < groups; ++g) group[g] = t.a + 4 * g * t.a_row;
  std::int64_t one = t.a_row * std::int64_t{sizeof(value)}, three = 3 * one;
  const value* b = t.b;
  const std::int64_t b_step = t.b_step;
  const auto step = [&](std::int64_t k) __attribute__((always_inline)) {
    add_products<Vector, Rows, Vectors, Masked>(
        b, mask,
        [&](int i) __attribute__((always_inline)) {
          const char* first = reinterpret_cast<const char*>(group[i / 4] + k);
          const char* at = i % 4 == 0   ? first
                           : i % 4 == 1 ? first + one
                           : i % 4 == 2 ? first + 2 * one
                                        : first + three;
          return reinterpret_cast<const value*>(at);
        },
        sum);
    b += b_step;
  };
  std::int64_t k = 0;
  for (; k + 4 <= t.depth; k += 4) {
    // The compiler shall not turn offsets back into pointers.
    POTL_UNROLLED for (int g = 0; g < groups; ++g) __asm__ volatile("" : "+r"(group[g]));
    __asm__ volatile("" : "+r"(one), "+r"(three));
    step(0);
    step(1);
    step(2);
    step(3);
    POTL_UNROLLED for (int g = 0; g < groups; ++g) group[g] += 4;
  }
  for (; k < t.depth; ++k) {
    step(0);
    POTL_UNROLLED for (int g = 0; g < groups; ++g)++ group[g];
  }
  store_sums<Vector, Rows, Vectors>(t, sum, mask);
}

template <class Value>
using tile_function = void (*)(const tile<Value>&);

template <class Vector, int MostRows, int MostVectors>
struct tile_table {
  using value = typename Vector::value;
  tile_function<value> entry[2][2][MostVectors][MostRows];  ///< [A in rows][B masked]
  tile_function<value> panels[MostVectors][MostRows];

  constexpr tile_table() : entry(), panels() { fill_vectors<1>(); }

  void run(const tile<value>& t) const {
    const int vectors = (t.columns + Vector::width - 1) / Vector::width;
    const bool masked = t.columns % Vector::width != 0;
    if (!masked && t.next_b.step <= 32 && t.a_row == 1 && t.a_step == MostRows &&
        t.b_step == b_step) {
      return panels[vectors - 1][t.rows - 1](t);
    }
    entry[t.a_row != 1 || t.a_step == 0][masked][vectors - 1][t.rows - 1](t);
  }

 private:
  static constexpr int b_step = MostVectors * Vector::width;

  template <int Vectors>
  constexpr void fill_vectors() {
    fill_rows<Vectors, 1>();
    if constexpr (Vectors < MostVectors) fill_vectors<Vectors + 1>();
  }
  template <int Vectors, int Rows>
  constexpr void fill_rows() {
    panels[Vectors - 1][Rows - 1] = multiply_panels<Vector, Rows, Vectors, MostRows, b_step>;
    entry[0][0][Vectors - 1][Rows - 1] = multiply_columns<Vector, Rows, Vectors, false>;
    entry[0][1][Vectors - 1][Rows - 1] = multiply_columns<Vector, Rows, Vectors, true>;
    entry[1][0][Vectors - 1][Rows - 1] = multiply_rows<Vector, Rows, Vectors, false>;
    entry[1][1][Vectors - 1][Rows - 1] = multiply_rows<Vector, Rows, Vectors, true>;
    if constexpr (Rows < MostRows) fill_rows<Vectors, Rows + 1>();
  }
};

}  // namespace
}  // namespace potl::numeric::detail

#pragma GCC diagnostic pop

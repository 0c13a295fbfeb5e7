// SPDX-License-Identifier: Apache-2.0
// Digits of lanes of int32, for vectors of any width. Included by files of one instruction set: as
// in tile_vector.hpp, everything is local to them.
#pragma once

#include "numeric/gemm/digits.hpp"

namespace potl::numeric::detail {
namespace {

/// Lanes of int32 in the place of the processor's vector. Not `using`: g++ 12 then forgets a size
/// that depends on a parameter.
template <class Vector>
struct lanes_of_int32 {
  typedef int type __attribute__((vector_size(sizeof(Vector))));
};

/// The nearest multiple of 2^Bits, of two the upper, divided by it; and what is left.
template <int Bits, class Vector>
struct two_digits {
  using lanes = typename lanes_of_int32<Vector>::type;
  lanes high, low;
  inline __attribute__((always_inline)) explicit two_digits(Vector q)
      : high((reinterpret_cast<lanes>(q) + (1 << (Bits - 1))) >> Bits),
        low(reinterpret_cast<lanes>(q) - (high << Bits)) {}
};

struct cut_24 : digits_24 {
  template <class Vector>
  static inline __attribute__((always_inline)) Vector cut(Vector q, int digit) {
    const two_digits<12, Vector> of(q);
    return reinterpret_cast<Vector>(digit == 0 ? of.high : digit == 1 ? of.low : of.high + of.low);
  }
};

struct cut_16_columns : digits_16_columns {
  template <class Vector>
  static inline __attribute__((always_inline)) Vector cut(Vector q, int) {
    return q;
  }
};

struct cut_16_rows : digits_16_rows {
  template <class Vector>
  static inline __attribute__((always_inline)) Vector cut(Vector q, int digit) {
    const two_digits<8, Vector> of(q);
    return reinterpret_cast<Vector>(digit == 0 ? of.high : of.low);
  }
};

}  // namespace
}  // namespace potl::numeric::detail

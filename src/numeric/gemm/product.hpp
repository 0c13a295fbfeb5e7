// SPDX-License-Identifier: Apache-2.0
// What the blocking of a product (blocked.hpp) is given, and small things that its parts share.
#pragma once

#include <cstdint>

#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/matrix.hpp>

#include "numeric/gemm/kernels.hpp"

namespace potl::numeric::detail {

constexpr std::int64_t divided_up(std::int64_t value, std::int64_t by) noexcept {
  return (value + by - 1) / by;
}

/// Memory that is needed soon.
struct stretch {
  const void* from = nullptr;
  std::int64_t bytes = 0;

  // What of it to fetch for each k of so many tiles.
  upcoming shared(std::int64_t tiles, std::int64_t depth) const noexcept {
    if (from == nullptr) return {};
    return {from, divided_up(bytes, tiles * depth)};
  }
};

/// The part of it that the next tile fetches.
inline void advance(upcoming& next, std::int64_t depth) noexcept {
  if (next.from != nullptr) next.from = static_cast<const char*>(next.from) + depth * next.step;
}

template <class From, class Packed, class Sum = Packed>
struct product {
  const kernels<From, Packed, Sum>& body;
  matrix<const From> a;
  matrix<const From> b;
  std::int64_t chunk = 512;             ///< a multiple of body.terms
  const std::int64_t* order = nullptr;  ///< a permutation of k; null: ascending
  const executor& threads;
  const double* row_scale = nullptr;  ///< for panels of integers
  const double* column_scale = nullptr;
  stretch next{};  ///< operands of the product that comes after this one
};

/// A part of C.
struct area {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
};

/// Tiles go straight to C, whose columns are adjacent.
template <class Value>
struct to_memory {
  Value* c = nullptr;
  std::int64_t c_row = 0;
  static constexpr bool finishes = false;
  void finish(const area&, const Value*, std::int64_t) const noexcept {}
};

}  // namespace potl::numeric::detail

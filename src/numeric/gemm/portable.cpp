// SPDX-License-Identifier: Apache-2.0
// The bodies for any processor: plain loops over rows of a tile.
#include <bit>
#include <limits>

#include <potl/numeric/detail/rounding.hpp>

#include "numeric/gemm/fused.hpp"
#include "numeric/gemm/kernels.hpp"
#include "numeric/gemm/twofold.hpp"

namespace potl::numeric::detail {
namespace {

constexpr int rows = 4;
constexpr int columns = 32;

// Products of widened float32 values are exact in double: there is nothing to fuse.
template <bool Exact, class Value>
Value multiplied(Value a, Value b, Value c) noexcept {
  if constexpr (Exact) return a * b + c;
  return fused(a, b, c);
}

template <bool Exact, class Value>
void multiply(const tile<Value>& t) {
  for (int i = 0; i < t.rows; ++i) {
    Value sum[columns] = {};
    for (std::int64_t k = 0; k < t.depth; ++k) {
      const Value a = t.a[i * t.a_row + k * t.a_step];
      const Value* b = t.b + k * t.b_step;
      for (int j = 0; j < t.columns; ++j) sum[j] = multiplied<Exact>(a, b[j], sum[j]);
    }
    Value* c = t.c + i * t.c_row;
    for (int j = 0; j < t.columns; ++j) {
      const Value value = t.first ? sum[j] : c[j] + sum[j];
      c[j] = t.last && value != value ? std::numeric_limits<Value>::quiet_NaN() : value;
    }
  }
}

template <class From, class Value>
void pack(const panel<From, Value>& p) {
  for (std::int64_t k = 0; k < p.depth; ++k) {
    const From* from = p.from + (p.order == nullptr ? k : p.order[k]) * p.step;
    Value* to = p.to + k * p.width;
    for (int lane = 0; lane < p.lanes; ++lane) {
      to[lane] = static_cast<Value>(from[lane * p.lane_stride]);
    }
    for (int lane = p.lanes; lane < p.width; ++lane) to[lane] = 0;
  }
}

template <class From, class Value>
constexpr kernels<From, Value> table{rows, columns, multiply<sizeof(From) != sizeof(Value), Value>,
                                     pack<From, Value>, pack<From, Value>};

std::int64_t round(const rounding& r, place* doubtful) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < r.rows; ++i) {
    for (std::int64_t j = 0; j < r.columns; ++j) {
      const double x = r.sums[i * r.sums_row + j];
      const double window = r.row_bound[i] * r.column_norm[j];
      const auto low = std::bit_cast<std::uint32_t>(round_to(x - window, r.bits));
      const auto high = std::bit_cast<std::uint32_t>(round_to(x + window, r.bits));
      r.y[i * r.y_row + j] = round_to(x, r.bits);
      if (low != high) doubtful[count++] = {i, j};
    }
  }
  return count;
}

}  // namespace

const kernels_f32& portable_f32() noexcept { return table<float, float>; }
const kernels_f64& portable_f64() noexcept { return table<double, double>; }

const kernels_widening& portable_widening() noexcept {
  static constexpr kernels_widening both{table<float, double>, round, squares, add_products};
  return both;
}

}  // namespace potl::numeric::detail

// SPDX-License-Identifier: Apache-2.0
// The kernels for any lanes. What is asked beside the vectors is a constant of the loop, chosen
// outside of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.hpp"

namespace potl::numeric::projections {
namespace {

using namespace elementwise;

template <class Wide>
POTL_INLINE double sum_of_lanes(Wide value) {
  constexpr std::size_t count = Wide::lanes;
  double each[count];
  value.store(each);
  double sum = 0;
  for (const double one : each) sum += one;
  return sum;
}

/// Part `at` of the lanes, as doubles.
template <class Lanes>
POTL_INLINE typename Lanes::wide widened(Lanes values, int at) {
  if constexpr (sizeof(typename Lanes::element) == sizeof(double)) {
    return values;
  } else {
    return values.widen(at);
  }
}

struct nothing_more {
  static constexpr bool squares = false, magnitudes = false;
};
struct with_squares {
  static constexpr bool squares = true, magnitudes = false;
};
struct with_magnitudes {
  static constexpr bool squares = false, magnitudes = true;
};

template <class Lanes, int Vectors, int Rows, class More>
POTL_INLINE void some_rows(const part<typename Lanes::element>& p, std::int64_t row) {
  using wide = typename Lanes::wide;
  constexpr std::size_t row_count = Rows, all = std::size_t{Vectors} + 1;
  wide sums[row_count][all];
  for (auto& of_row : sums) {
    for (auto& one : of_row) one = wide(0.0);
  }
  const auto* m = p.m + row * p.stride;
  const auto add = [&](const Lanes(&values)[row_count], const wide* x, int at) {
    // x: the vectors' elements, then the weights'
    for (int r = 0; r < Rows; ++r) {
      const wide value = widened(values[r], at);
      for (int v = 0; v < Vectors; ++v) sums[r][v] = fma(value, x[v], sums[r][v]);
      if constexpr (More::squares) sums[r][Vectors] = fma(value, value, sums[r][Vectors]);
      if constexpr (More::magnitudes) {
        sums[r][Vectors] = fma(magnitude(value), x[Vectors], sums[r][Vectors]);
      }
    }
  };
  constexpr std::int64_t step = Lanes::lanes;
  constexpr auto line = static_cast<std::int64_t>(64 / sizeof(typename Lanes::element));
  std::int64_t column = 0;
  Lanes values[row_count];
  wide x[all];
  const auto add_lanes = [&](std::int64_t from) {
    for (int r = 0; r < Rows; ++r) values[r] = Lanes::load(m + r * p.stride + from);
    for (int at = 0; at < Lanes::wides; ++at) {
      const std::int64_t here = from + at * wide::lanes;
      for (int v = 0; v < Vectors; ++v) x[v] = wide::load(p.x + v * p.x_step + here);
      if constexpr (More::magnitudes) x[Vectors] = wide::load(p.weights + here);
      add(values, x, at);
    }
  };
  for (; column + line <= p.columns; column += line) {
    // The next rows: processors fetch ahead within a page only, and many a row is one. Into the
    // second cache: the first would have lost them until they are read.
    for (int r = 0; r < Rows; ++r) {
      __builtin_prefetch(m + (r + Rows) * p.stride + column, 0, 2);
    }
    for (std::int64_t from = column; from < column + line; from += step) add_lanes(from);
  }
  for (; column + step <= p.columns; column += step) add_lanes(column);
  if (const std::int64_t rest = p.columns - column; rest > 0) {
    for (int r = 0; r < Rows; ++r) {
      values[r] = Lanes::load_first(m + r * p.stride + column, static_cast<std::size_t>(rest));
    }
    for (int at = 0; at < Lanes::wides; ++at) {
      const std::int64_t here = column + at * wide::lanes;
      if (here >= p.columns) break;
      const auto count =
          static_cast<std::size_t>(p.columns - here < wide::lanes ? p.columns - here : wide::lanes);
      for (int v = 0; v < Vectors; ++v) x[v] = wide::load_first(p.x + v * p.x_step + here, count);
      if constexpr (More::magnitudes) x[Vectors] = wide::load_first(p.weights + here, count);
      add(values, x, at);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int v = 0; v < Vectors; ++v) {
      p.out[v * p.out_step + row + r] = sum_of_lanes(sums[r][v]);
    }
    if constexpr (More::squares) p.squares[row + r] = sum_of_lanes(sums[r][Vectors]);
    if constexpr (More::magnitudes) p.magnitudes[row + r] = sum_of_lanes(sums[r][Vectors]);
  }
}

template <class Lanes, int Vectors, class More>
void rows_with(const part<typename Lanes::element>& p) {
  constexpr int together = Vectors <= 1 ? 4 : 2;
  std::int64_t row = 0;
  for (; row + together <= p.rows; row += together)
    some_rows<Lanes, Vectors, together, More>(p, row);
  for (; row < p.rows; ++row) some_rows<Lanes, Vectors, 1, More>(p, row);
}

template <class Lanes, int Vectors>
void by_row(const part<typename Lanes::element>& p) {
  if (p.squares != nullptr) return rows_with<Lanes, Vectors, with_squares>(p);
  if (p.magnitudes != nullptr) return rows_with<Lanes, Vectors, with_magnitudes>(p);
  rows_with<Lanes, Vectors, nothing_more>(p);
}

/// `Columns` columns, from this one on, times their elements of x, added to the results.
template <class Lanes, int Vectors, int Columns, class More>
POTL_INLINE void some_columns(const part<typename Lanes::element>& p, std::int64_t column) {
  using wide = typename Lanes::wide;
  constexpr std::size_t together = Columns, all = std::size_t{Vectors} + 1;
  wide x[together][all];
  for (int c = 0; c < Columns; ++c) {
    for (int v = 0; v < Vectors; ++v) x[c][v] = wide(p.x[v * p.x_step + column + c]);
    if constexpr (More::magnitudes) x[c][Vectors] = wide(p.weights[column + c]);
  }
  const auto* m = p.m + column * p.stride;
  const auto add_to = [](double* to, std::size_t count, const wide(&values)[together],
                         const auto& term) {
    wide sum = count == wide::lanes ? wide::load(to) : wide::load_first(to, count);
    for (int c = 0; c < Columns; ++c) sum = term(values[c], c, sum);
    count == wide::lanes ? sum.store(to) : sum.store_first(to, count);
  };
  for (std::int64_t row = 0; row < p.rows; row += Lanes::lanes) {
    const std::int64_t left = p.rows - row;
    Lanes elements[together];
    for (int c = 0; c < Columns; ++c) {
      const auto* from = m + c * p.stride + row;
      __builtin_prefetch(from + Columns * p.stride);
      elements[c] = left >= Lanes::lanes ? Lanes::load(from)
                                         : Lanes::load_first(from, static_cast<std::size_t>(left));
    }
    for (int at = 0; at < Lanes::wides && at * wide::lanes < left; ++at) {
      const std::int64_t here = row + at * wide::lanes, rest = p.rows - here;
      const auto count = static_cast<std::size_t>(rest < wide::lanes ? rest : wide::lanes);
      wide values[together];
      for (int c = 0; c < Columns; ++c) values[c] = widened(elements[c], at);
      for (int v = 0; v < Vectors; ++v) {
        add_to(p.out + v * p.out_step + here, count, values,
               [&](wide value, int c, wide sum) { return fma(value, x[c][v], sum); });
      }
      if constexpr (More::squares) {
        add_to(p.squares + here, count, values,
               [](wide value, int, wide sum) { return fma(value, value, sum); });
      }
      if constexpr (More::magnitudes) {
        add_to(p.magnitudes + here, count, values, [&](wide value, int c, wide sum) {
          return fma(magnitude(value), x[c][Vectors], sum);
        });
      }
    }
  }
}

/// Results of a block of rows are summed in a place of their own: whole results often lie a power
/// of two apart, as columns do, and would push each other out of the first cache. Each is loaded
/// and stored once for four columns, and none lies in two of the cache's lines.
template <class Lanes, int Vectors, class More>
void columns_with(const part<typename Lanes::element>& whole) {
  constexpr std::int64_t block = 256;
  constexpr int together = 4;
  constexpr std::size_t results = std::size_t{Vectors} + More::squares + More::magnitudes;
  for (std::int64_t row = 0; row < whole.rows; row += block) {
    alignas(64) double sums[(results > 0 ? results : 1) * block] = {};
    part<typename Lanes::element> p = whole;
    p.rows = whole.rows - row < block ? whole.rows - row : block;
    p.m += row;
    p.out = sums;
    p.out_step = block;
    if constexpr (More::squares) p.squares = sums + Vectors * block;
    if constexpr (More::magnitudes) p.magnitudes = sums + Vectors * block;
    std::int64_t column = 0;
    for (; column + together <= p.columns; column += together) {
      some_columns<Lanes, Vectors, together, More>(p, column);
    }
    for (; column < p.columns; ++column) some_columns<Lanes, Vectors, 1, More>(p, column);
    const auto put = [&](const double* from, double* to) {
      for (std::int64_t i = 0; i < p.rows; ++i) to[row + i] = from[i];
    };
    for (int v = 0; v < Vectors; ++v) put(sums + v * block, whole.out + v * whole.out_step);
    if constexpr (More::squares) put(p.squares, whole.squares);
    if constexpr (More::magnitudes) put(p.magnitudes, whole.magnitudes);
  }
}

template <class Lanes, int Vectors>
void by_column(const part<typename Lanes::element>& p) {
  if (p.squares != nullptr) return columns_with<Lanes, Vectors, with_squares>(p);
  if (p.magnitudes != nullptr) return columns_with<Lanes, Vectors, with_magnitudes>(p);
  columns_with<Lanes, Vectors, nothing_more>(p);
}

template <class Wide>
void add_shifted(const shifted& s) {
  constexpr int together = 4;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const double* from = s.from + row * s.from_stride;
    double* const to = s.to + row * s.to_stride;
    std::int64_t column = 0;
    for (; column + together * Wide::lanes <= s.columns; column += together * Wide::lanes) {
      Wide sums[together];
      for (int k = 0; k < together; ++k) sums[k] = Wide::load(to + column + k * Wide::lanes);
      for (std::size_t t = 0; t < s.terms; ++t) {
        const Wide factor(s.factors[t]);
        const double* const term = from + s.offsets[t] + column;
        for (int k = 0; k < together; ++k) {
          sums[k] = fma(Wide::load(term + k * Wide::lanes), factor, sums[k]);
        }
      }
      for (int k = 0; k < together; ++k) sums[k].store(to + column + k * Wide::lanes);
    }
    for (; column < s.columns; column += Wide::lanes) {
      const auto left = static_cast<std::size_t>(s.columns - column);
      const std::size_t count = left < Wide::lanes ? left : Wide::lanes;
      Wide sum = Wide::load_first(to + column, count);
      for (std::size_t t = 0; t < s.terms; ++t) {
        const double* const term = from + s.offsets[t] + column;
        sum = fma(Wide::load_first(term, count), Wide(s.factors[t]), sum);
      }
      sum.store_first(to + column, count);
    }
  }
}

template <class Lanes>
constexpr kernels<typename Lanes::element> kernels_of{
    {by_row<Lanes, 0>, by_row<Lanes, 1>, by_row<Lanes, 2>, by_row<Lanes, 4>, by_row<Lanes, 8>},
    {by_column<Lanes, 0>, by_column<Lanes, 1>, by_column<Lanes, 2>, by_column<Lanes, 4>,
     by_column<Lanes, 8>},
    add_shifted<typename Lanes::wide>};

}  // namespace
}  // namespace potl::numeric::projections

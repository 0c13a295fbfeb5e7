// SPDX-License-Identifier: Apache-2.0
// cr32 and log64: sums in double, then a test whether the rounding is certain; what is not certain
// is looked at alone (rounding.hpp).
#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <numeric>

#include <potl/core/rng.hpp>
#include <potl/numeric/exact_sum.hpp>

#include "numeric/gemm/blocked.hpp"
#include "numeric/gemm/modes.hpp"

namespace potl::numeric::detail {
namespace {

/// Norms of the rows of A, times the factor of the window, and of the columns of B.
struct norms {
  std::vector<double> row, column;
};

norms norms_of(matrix<const float> a, matrix<const float> b, double factor) {
  norms out;
  out.row.resize(static_cast<std::size_t>(a.rows));
  out.column.resize(static_cast<std::size_t>(b.columns));
  for (std::size_t i = 0; i < out.row.size(); ++i) {
    out.row[i] = factor * norm(a.data + static_cast<std::int64_t>(i) * a.row_stride, a.columns,
                               a.column_stride);
  }
  for (std::size_t j = 0; j < out.column.size(); ++j) {
    out.column[j] =
        norm(b.data + static_cast<std::int64_t>(j) * b.column_stride, b.rows, b.row_stride);
  }
  return out;
}

struct uncertain {
  matrix<const float> a, b;
  matrix<float> c;
  norms bounds;
  int bits = 32;

  dot_operands operands(std::int64_t i, std::int64_t j) const noexcept {
    return {a.columns, a.data + i * a.row_stride, a.column_stride, b.data + j * b.column_stride,
            b.row_stride};
  }

  /// Rounds an area; calls body(i, j, x, window) where that may be wrong or near a tie.
  template <class Body>
  void round(const area& part, const double* sums, std::int64_t sums_row, const Body& body) const {
    for (std::int64_t i = 0; i < part.rows; ++i) {
      for (std::int64_t j = 0; j < part.columns; ++j) {
        const std::int64_t row = part.row + i, column = part.column + j;
        const double x = sums[i * sums_row + j];
        const double window = bounds.row[static_cast<std::size_t>(row)] *
                              bounds.column[static_cast<std::size_t>(column)];
        const auto low = std::bit_cast<std::uint32_t>(round_to(x - window, bits));
        const auto high = std::bit_cast<std::uint32_t>(round_to(x + window, bits));
        c(row, column) = round_to(x, bits);
        // An infinity or NaN is the same in any order.
        if (low != high && std::isfinite(x)) body(row, column, x, window);
      }
    }
  }
};

struct to_correct {
  const uncertain& elements;
  static constexpr bool finishes = true;
  void finish(const area& part, const double* sums, std::int64_t sums_row) const {
    elements.round(part, sums, sums_row, [&](std::int64_t i, std::int64_t j, double, double) {
      elements.c(i, j) = exact_dot(elements.operands(i, j), 32);
    });
  }
};

struct to_logged {
  const uncertain& elements;
  std::uint64_t first_index;
  std::mutex& guard;
  std::vector<near_tie>& ties;
  static constexpr bool finishes = true;
  void finish(const area& part, const double* sums, std::int64_t sums_row) const {
    elements.round(
        part, sums, sums_row, [&](std::int64_t i, std::int64_t j, double x, double window) {
          const settled_element settled = settle(x, window, elements.bits, elements.operands(i, j));
          elements.c(i, j) = settled.value;
          if (!settled.logged) return;
          const auto index = static_cast<std::uint64_t>(i * elements.c.columns + j);
          const std::lock_guard lock(guard);
          ties.push_back({first_index + index, x, window});
        });
  }
};

// The permutation of that number (Fisher and Yates).
std::vector<std::int64_t> permutation(std::int64_t count, std::uint64_t number) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  const random_key key{number, 0};
  for (std::size_t i = out.size(); i > 1; --i) {
    std::swap(out[i - 1], out[static_cast<std::size_t>(random_below(key, i, i))]);
  }
  return out;
}

}  // namespace

void correctly_rounded(matrix<const float> a, matrix<const float> b, matrix<float> c,
                       const executor& threads) {
  const uncertain elements{a, b, c, norms_of(a, b, error_factor(a.columns)), 32};
  const product<float, double> p{active_widening(), a, b, log64_chunk, nullptr, threads};
  multiply_blocked(p, to_correct{elements});
}

void rounded(matrix<const float> a, matrix<const float> b, matrix<float> c,
             const log64_options& options, const executor& threads, std::uint64_t first_index,
             std::vector<near_tie>& ties) {
  const uncertain elements{a, b, c, norms_of(a, b, 2 * error_factor(a.columns)), options.bits};
  std::vector<std::int64_t> order;
  if (options.order != 0) order = permutation(a.columns, options.order);
  const product<float, double> p{
      active_widening(), a, b, log64_chunk, order.empty() ? nullptr : order.data(), threads};
  std::mutex guard;
  const std::size_t before = ties.size();
  multiply_blocked(p, to_logged{elements, first_index, guard, ties});
  std::sort(ties.begin() + static_cast<std::ptrdiff_t>(before), ties.end(),
            [](const near_tie& x, const near_tie& y) { return x.index < y.index; });
}

}  // namespace potl::numeric::detail

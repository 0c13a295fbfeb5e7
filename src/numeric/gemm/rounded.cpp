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
#include "numeric/gemm/share_lines.hpp"
#include "numeric/gemm/uncertain.hpp"

namespace potl::numeric::detail {
namespace {

/// Norms of the rows of A and of the columns of B, those that norm() of rounding.hpp gives, and the
/// rows' times the factor of the window.
struct norms {
  std::vector<double> row, column, bound;
};

std::vector<double> norms_of(const kernels_widening& body, const lines& l,
                             const executor& threads) {
  std::vector<double> out(static_cast<std::size_t>(l.count));
  share_lines(l, threads, [&](const lines& part, std::int64_t first) {
    constexpr std::int64_t together = 128;
    double lanes[together][norm_lanes];
    for (std::int64_t begin = 0; begin < part.count; begin += together) {
      lines some = part;
      some.from += begin * part.stride;
      some.count = std::min(together, part.count - begin);
      body.squares(some, &lanes[0][0]);
      for (std::int64_t i = 0; i < some.count; ++i) {
        out[static_cast<std::size_t>(first + begin + i)] =
            norm_of_squares(combine_norm_lanes(lanes[i]), l.terms);
      }
    }
  });
  return out;
}

norms norms_of(const kernels_widening& body, const matrix<const float>& a,
               const matrix<const float>& b, double factor, const executor& threads) {
  norms out{
      norms_of(body, rows_of(a), threads), norms_of(body, rows_of(b.transposed()), threads), {}};
  for (const double one : out.row) out.bound.push_back(factor * one);
  return out;
}

/// Elements whose rounding a sum in double does not settle.
struct uncertain {
  const kernels_widening& body;
  matrix<const float> a, b;
  matrix<float> c;
  norms bounds;
  int bits = 32;

  double norm_a(std::int64_t i) const noexcept { return bounds.row[static_cast<std::size_t>(i)]; }
  double norm_b(std::int64_t j) const noexcept {
    return bounds.column[static_cast<std::size_t>(j)];
  }

  /// Rounds an area; calls settle(i, j, x, window) where that may be wrong or near a tie.
  template <class Settle>
  void round(const area& part, const double* sums, std::int64_t sums_row,
             const Settle& settle) const {
    // In pieces, so that C with columns apart and all places in doubt fit on the stack.
    constexpr std::int64_t piece = 16;
    for (std::int64_t top = 0; top < part.rows; top += piece) {
      for (std::int64_t left = 0; left < part.columns; left += piece) {
        const area here{part.row + top, part.column + left, std::min(piece, part.rows - top),
                        std::min(piece, part.columns - left)};
        round_piece<piece>(here, sums + top * sums_row + left, sums_row, settle);
      }
    }
  }

 private:
  template <std::int64_t Piece, class Settle>
  void round_piece(const area& here, const double* sums, std::int64_t sums_row,
                   const Settle& settle) const {
    constexpr auto places = static_cast<std::size_t>(Piece * Piece);
    place doubtful[places];
    float apart[places];
    const bool adjacent = c.column_stride == 1;
    rounding r;
    r.sums = sums;
    r.sums_row = sums_row;
    r.row_bound = bounds.bound.data() + here.row;
    r.column_norm = bounds.column.data() + here.column;
    r.y = adjacent ? &c(here.row, here.column) : apart;
    r.y_row = adjacent ? c.row_stride : Piece;
    r.rows = here.rows;
    r.columns = here.columns;
    r.bits = bits;
    const std::int64_t count = body.round(r, doubtful);
    for (std::int64_t i = 0; i < here.rows && !adjacent; ++i) {
      for (std::int64_t j = 0; j < here.columns; ++j) {
        c(here.row + i, here.column + j) = apart[i * Piece + j];
      }
    }
    for (std::int64_t at = 0; at < count; ++at) {
      const auto [i, j] = doubtful[at];
      const double x = sums[i * sums_row + j];
      // An infinity or NaN is the same in any order.
      if (std::isfinite(x)) {
        settle(here.row + i, here.column + j, x, r.row_bound[i] * r.column_norm[j]);
      }
    }
  }
};

struct to_correct {
  const uncertain& elements;
  static constexpr bool finishes = true;
  void finish(const area& part, const double* sums, std::int64_t sums_row) const {
    elements.round(part, sums, sums_row, [&](std::int64_t i, std::int64_t j, double, double) {
      elements.c(i, j) = correctly_rounded(operands_of(elements.a, elements.b, i, j),
                                           elements.norm_a(i) * elements.norm_b(j));
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
          const settled_element element =
              settled(x, window, elements.bits, operands_of(elements.a, elements.b, i, j),
                      elements.norm_a(i), elements.norm_b(j));
          elements.c(i, j) = element.value;
          if (!element.logged) return;
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
  const kernels_widening& body = active_widening();
  const uncertain elements{body, a, b, c, norms_of(body, a, b, error_factor(a.columns), threads),
                           32};
  const product<float, double, double> p{body.product, a, b, log64_chunk, nullptr, threads};
  multiply_blocked(p, to_correct{elements});
}

void rounded(matrix<const float> a, matrix<const float> b, matrix<float> c,
             const log64_options& options, const executor& threads, std::uint64_t first_index,
             std::vector<near_tie>& ties) {
  const kernels_widening& body = active_widening();
  const uncertain elements{
      body, a, b, c, norms_of(body, a, b, 2 * error_factor(a.columns), threads), options.bits};
  std::vector<std::int64_t> order;
  if (options.order != 0) order = permutation(a.columns, options.order);
  const product<float, double, double> p{
      body.product, a, b, log64_chunk, order.empty() ? nullptr : order.data(), threads};
  std::mutex guard;
  const std::size_t before = ties.size();
  multiply_blocked(p, to_logged{elements, first_index, guard, ties});
  std::sort(ties.begin() + static_cast<std::ptrdiff_t>(before), ties.end(),
            [](const near_tie& x, const near_tie& y) { return x.index < y.index; });
}

}  // namespace potl::numeric::detail

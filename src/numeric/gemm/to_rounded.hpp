// SPDX-License-Identifier: Apache-2.0
// The end of products in double: sums are rounded, and elements whose rounding the sum does not
// settle are looked at alone.
#pragma once

#include <cmath>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "numeric/gemm/pieces.hpp"
#include "numeric/gemm/product.hpp"
#include "numeric/gemm/share_lines.hpp"
#include "numeric/gemm/uncertain.hpp"

namespace potl::numeric::detail {

/// Norms of the rows of A and of the columns of B, those that norm() of rounding.hpp gives, and the
/// rows' times the factor of the window.
struct norms {
  std::vector<double> row, column, bound;

  double row_norm(std::int64_t i) const noexcept { return row[static_cast<std::size_t>(i)]; }
  double column_norm(std::int64_t j) const noexcept { return column[static_cast<std::size_t>(j)]; }
  double window(std::int64_t i, std::int64_t j) const noexcept {
    return bound[static_cast<std::size_t>(i)] * column_norm(j);
  }
};

inline std::vector<double> norms_of(const kernels_widening& body, const lines& l,
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

inline norms norms_of(const kernels_widening& body, const matrix<const float>& a,
                      const matrix<const float>& b, double factor, const executor& threads) {
  norms out{
      norms_of(body, rows_of(a), threads), norms_of(body, rows_of(b.transposed()), threads), {}};
  for (const double one : out.row) out.bound.push_back(factor * one);
  return out;
}

/// Rounds sums; keeps elements whose rounding a sum in double does not settle until there are many
/// or the product is complete.
class to_rounded {
 public:
  using settle_body = std::function<float(const unsettled&, const dot_operands&)>;
  /// Whether the rounded sum stands, as a few terms may tell.
  using early_body = std::function<bool(const unsettled&, const dot_operands&)>;
  static constexpr bool finishes = true;

  to_rounded(const kernels_widening& body, const matrix<const float>& a,
             const matrix<const float>& b, const matrix<float>& c, const norms& bounds, int bits,
             early_body early, settle_body settle)
      : body_(body),
        a_(a),
        b_(b),
        c_(c),
        bounds_(bounds),
        bits_(bits),
        early_(std::move(early)),
        settle_(std::move(settle)) {}

  void finish(const area& part, const double* sums, std::int64_t sums_row) const {
    for_pieces(part, sums, sums_row,
               [&](const area& here, const double* from) { round_piece(here, from, sums_row); });
  }

  /// After the product.
  void settle_rest(const executor& threads) const { settle(std::move(kept_), threads); }

 private:
  static constexpr std::size_t most_kept = std::size_t{1} << 14;

  void round_piece(const area& here, const double* sums, std::int64_t sums_row) const {
    place doubtful[piece_elements];
    std::int64_t count = 0;
    write_piece(c_, here, [&](float* y, std::int64_t y_row) {
      const double* row_bound = bounds_.bound.data() + here.row;
      const double* column_norm = bounds_.column.data() + here.column;
      count = body_.round(
          {sums, sums_row, row_bound, column_norm, y, y_row, here.rows, here.columns, bits_},
          doubtful);
    });
    if (count != 0) keep(here, sums, sums_row, doubtful, count);
  }

  void keep(const area& here, const double* sums, std::int64_t sums_row, const place* doubtful,
            std::int64_t count) const {
    std::vector<unsettled> some;
    for (std::int64_t at = 0; at < count; ++at) {
      const auto [i, j] = doubtful[at];
      const unsettled one{here.row + i, here.column + j, sums[i * sums_row + j]};
      // An infinity or NaN is the same in any order.
      if (std::isfinite(one.sum) && !(early_ && early_(one, operands_of(one, a_, b_))))
        some.push_back(one);
    }
    if (some.empty()) return;
    std::vector<unsettled> many;
    {
      const std::lock_guard lock(guard_);
      kept_.insert(kept_.end(), some.begin(), some.end());
      if (kept_.size() >= most_kept) many.swap(kept_);
    }
    if (!many.empty()) settle(std::move(many), inline_executor());
  }

  void settle(std::vector<unsettled> elements, const executor& threads) const {
    settle_together(std::move(elements), a_, b_, threads,
                    [this](const unsettled& one, const dot_operands& operands) {
                      c_(one.row, one.column) = settle_(one, operands);
                    });
  }

  const kernels_widening& body_;
  matrix<const float> a_, b_;
  matrix<float> c_;
  const norms& bounds_;
  int bits_;
  early_body early_;
  settle_body settle_;
  mutable std::mutex guard_;
  mutable std::vector<unsettled> kept_;
};

}  // namespace potl::numeric::detail

// SPDX-License-Identifier: Apache-2.0
// How sums in double become the results of log64 and cr32: all are rounded, and those whose
// rounding the sum does not settle are looked at alone, from their operands.
//
// The quick test uses a bound of each norm that is cheap for a convolution, and at least norm() of
// rounding.hpp: that makes more elements doubtful, and changes no result. What is doubtful gets the
// window that rounding.hpp defines.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include <potl/numeric/arithmetic.hpp>
#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/rounding.hpp>
#include <potl/numeric/detail/rounding_session.hpp>
#include <potl/numeric/gemm.hpp>

namespace potl::numeric::conv {

struct doubtful {
  std::int64_t index;
  double sum;
};

class rounded_results {
 public:
  /// cr32, or log64 with these options. `operands` are those of an element of the target.
  rounded_results(arithmetic mode, const log64_options& options, element_operands operands,
                  float* target, const executor& threads);

  std::uint64_t order() const noexcept { return options_.order; }
  /// The window of an element, without the norms.
  double factor(std::int64_t terms) const noexcept;

  struct area {
    const double* sums;
    std::int64_t sums_row;
    const double* row_bounds;     ///< factor times a bound of the norm
    const double* column_bounds;  ///< of norms
    float* y;
    std::int64_t y_row, rows, columns;
  };
  /// Rounds, and calls found(row, column, sum) where that is doubtful.
  template <class Found>
  void round(const area& part, const Found& found) const {
    constexpr std::int64_t high = 16, wide = 64;
    std::int64_t places[2 * high * wide];
    for (std::int64_t row = 0; row < part.rows; row += high)
      for (std::int64_t column = 0; column < part.columns; column += wide) {
        const std::int64_t count = round_some(
            {part.sums + row * part.sums_row + column, part.sums_row, part.row_bounds + row,
             part.column_bounds + column, part.y + row * part.y_row + column, part.y_row,
             std::min(high, part.rows - row), std::min(wide, part.columns - column)},
            places);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t r = row + places[2 * i], c = column + places[2 * i + 1];
          found(r, c, part.sums[r * part.sums_row + c]);
        }
      }
  }

  /// Settles them now or later: their elements of the target are written. From any thread.
  void keep(const std::vector<doubtful>& some);
  /// When all are kept. What log64 logs, in order.
  std::vector<near_tie> finish();

 private:
  std::int64_t round_some(const area& part, std::int64_t* places) const;
  void settle(const std::vector<doubtful>& some, const executor& threads);

  arithmetic mode_;
  log64_options options_;
  element_operands operands_;
  float* target_;
  const executor& threads_;
  std::mutex guard_;
  std::vector<doubtful> kept_;
  std::vector<near_tie> ties_;
};

}  // namespace potl::numeric::conv

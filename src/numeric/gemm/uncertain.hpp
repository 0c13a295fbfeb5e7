// SPDX-License-Identifier: Apache-2.0
// Single elements of a product whose sum in double does not settle their rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <potl/numeric/detail/exact_sum.hpp>
#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/matrix.hpp>

namespace potl::numeric::detail {

struct unsettled {
  std::int64_t row = 0;
  std::int64_t column = 0;
  double sum = 0;
};

inline dot_operands operands_of(const unsettled& one, const matrix<const float>& a,
                                const matrix<const float>& b) noexcept {
  return {a.columns, a.data + one.row * a.row_stride, a.column_stride,
          b.data + one.column * b.column_stride, b.row_stride};
}

/// Calls settle(element, operands) for each, in an order that suits the memory of B: columns far
/// apart are copied, several at a time.
void settle_together(std::vector<unsettled> elements, const matrix<const float>& a,
                     const matrix<const float>& b, const executor& threads,
                     const std::function<void(const unsettled&, const dot_operands&)>& settle);

/// exact_dot(operands, bits), mostly without an exact sum: a sum in twice double's precision
/// settles all but sums that cancel or lie on a tie. `norms` is at least |a| |b|.
float correctly_rounded(const dot_operands& operands, double norms, int bits) noexcept;

/// Whether settled() logs x as it is, where a few terms tell that the sum of all is not exact: of
/// most elements that it logs.
bool is_near_tie(double x, double window, int bits, const dot_operands& operands, double norm_a,
                 double norm_b) noexcept;

/// numeric::settle(), given that norm_a and norm_b are what norm() returns for the operands.
settled_element settled(double x, double window, int bits, const dot_operands& operands,
                        double norm_a, double norm_b) noexcept;

}  // namespace potl::numeric::detail

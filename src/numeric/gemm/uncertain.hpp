// SPDX-License-Identifier: Apache-2.0
// Single elements of a product whose sum in double does not settle their rounding.
#pragma once

#include <cstdint>

#include <potl/numeric/exact_sum.hpp>
#include <potl/numeric/matrix.hpp>

namespace potl::numeric::detail {

/// Row `i` of A and column `j` of B.
dot_operands operands_of(const matrix<const float>& a, const matrix<const float>& b, std::int64_t i,
                         std::int64_t j) noexcept;

/// exact_dot(operands, 32), mostly without an exact sum: a sum in twice double's precision settles
/// all but sums that cancel or lie on a tie. `norms` is at least |a| |b|.
float correctly_rounded(const dot_operands& operands, double norms) noexcept;

/// numeric::settle(), given that norm_a and norm_b are what norm() returns for the operands.
settled_element settled(double x, double window, int bits, const dot_operands& operands,
                        double norm_a, double norm_b) noexcept;

}  // namespace potl::numeric::detail

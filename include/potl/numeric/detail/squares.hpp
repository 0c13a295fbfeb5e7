// SPDX-License-Identifier: Apache-2.0
// Tensors that steps make of squares: second moments of optimizers, running variances of norms.
//
// Claims: one decision for Python's laws of a state and for C++ workloads (state_law.md). NaN is
// not below zero.
// Cost: one pass over the values.
#pragma once

#include <cstdint>
#include <optional>

#include <potl/core/digest.hpp>
#include <potl/core/dtype.hpp>

namespace potl::numeric {

/// Why values are not what steps make of squares, in words that follow their path: one is below
/// zero. Null where none is.
const char* why_no_squares(dtype type, bytes_view values);

/// Averages of gradients and of their squares, as Adam keeps them. Empty views stand for zeros.
struct moments {
  bytes_view means, squares;
};

/// What steps can make of moments.
struct moment_law {
  double most = 0;         ///< of a mean's square beside the square
  double kept = 0;         ///< least share of a square that one step leaves
  double added = 1;        ///< share of a gradient's square that one step adds
  bool are_roots = false;  ///< `squares` holds sizes of gradients, as Adamax does
};

/// The law of averages that keep `mean_share` and `square_share` in a step, by Cauchy and Schwarz.
/// What they do not bound, or shares that are no numbers, forbids nothing.
moment_law law_of_moments(double mean_share, double square_share, bool are_roots);

/// Whether no gradients led from one to the other in `steps` steps: an element's mean is too large
/// beside its square, and was not before, or its square shrank further than steps let it. Not where
/// squares of gradients are next to nothing for the type, and rounded to 0.
/// Precondition: views that are not empty have one size.
bool are_no_steps(dtype type, const moments& before, const moments& now, const moment_law& law,
                  std::uint64_t steps);

/// Whether a running variance stays a mean of squares: with this momentum (none: all numbers count
/// alike) it cannot come below zero, and none of its first values is there.
bool averages_squares(std::optional<double> momentum, dtype type, bytes_view first_values);

}  // namespace potl::numeric

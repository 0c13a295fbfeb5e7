// SPDX-License-Identifier: Apache-2.0
// Tensors that steps make of squares: second moments of optimizers, running variances of norms.
//
// Claims: one decision for Python's laws of a state and for C++ workloads (state_law.md). NaN is
// not below zero.
// Cost: one pass over the values.
#pragma once

#include <optional>

#include <potl/core/digest.hpp>
#include <potl/core/dtype.hpp>

namespace potl::numeric {

/// Why values are not what steps make of squares, in words that follow their path: one is below
/// zero. Null where none is.
const char* why_no_squares(dtype type, bytes_view values);

/// Whether an element of `means`, of gradients, is so large beside the same of `squares`, the means
/// of their squares, that no gradients made it so, and was not before. Empty views stand for zeros.
/// Precondition: all others have one size. Where squares of gradients that are next to nothing are
/// rounded to 0, nothing is too large. `are_roots`: `squares` holds the sizes of gradients instead.
bool outgrown(dtype type, bytes_view means_before, bytes_view squares_before, bytes_view means,
              bytes_view squares, bool are_roots = false);

/// Whether a running variance stays a mean of squares: with this momentum (none: all numbers count
/// alike) it cannot come below zero, and none of its first values is there.
bool averages_squares(std::optional<double> momentum, dtype type, bytes_view first_values);

}  // namespace potl::numeric

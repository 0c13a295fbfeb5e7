// SPDX-License-Identifier: Apache-2.0
// The two rows of operands behind one element of a convolution's result, for the rounding log
// (numeric/detail/rounding_session.hpp): the row of A and the column of B in
// docs/reference/convolution.md, in the order of the terms, padding included as zeros.
//
// Claims: the element is the dot product of the two. Assumes a geometry that
// numeric/convolution.hpp accepts. Cost: one pass over the terms for each element that is asked
// for. The pointers must outlive the call that uses the function; indices are those of the results.
#pragma once

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/rounding_session.hpp>

namespace potl::numeric {

/// Of y, from x and the weights w.
element_operands convolution_operands(const convolution& geometry, const float* x, const float* w);

/// Of dx, from dy and the weights w.
element_operands input_gradient_operands(const convolution& geometry, const float* dy,
                                         const float* w);

/// Of dw, from x and dy.
element_operands weight_gradient_operands(const convolution& geometry, const float* x,
                                          const float* dy);

}  // namespace potl::numeric

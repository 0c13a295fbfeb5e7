// SPDX-License-Identifier: Apache-2.0
// Dot products in the mode of the block: what all matrix operators and convolutions are made of.
//
// float32 is computed in the mode. bfloat16 operands are computed in xint16, which keeps all bits
// of all but the smallest of a row; float16 is widened and computed in the mode; float64 is the
// chain of ord32 in double, whatever the mode. Results are rounded once to the operands' type.
// A product of complex numbers is one of real numbers, with twice the terms: re re, -im im, re re
// ... for the real part, re im, im re ... for the imaginary one. log64 has a session behind it
// (rounding.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include "mode.hpp"

namespace potl::libtorch::dispatch {

/// The arithmetic of dot products of operands of this type.
numeric::arithmetic product_mode(c10::ScalarType type);

/// A B of real tensors of one floating type: [m, k] times [k, n], or [b, m, k] times [b, k, n].
at::Tensor product(const char* name, const at::Tensor& a, const at::Tensor& b);

/// Writes A B straight to `out`, and says whether it could: a row-major tensor of the result's
/// sizes and of A's type, float32 or float64, that shares no memory with the operands.
bool product_into(const char* name, const at::Tensor& a, const at::Tensor& b,
                  const at::Tensor& out);

/// The same of float32 tensors in a mode of the caller's.
at::Tensor product_in(const char* name, numeric::arithmetic mode, const at::Tensor& a,
                      const at::Tensor& b);

/// A B before it is rounded to the operands' type: float32 for bfloat16 and float16.
at::Tensor wide_product(const char* name, const at::Tensor& a, const at::Tensor& b);

}  // namespace potl::libtorch::dispatch

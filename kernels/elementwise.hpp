// SPDX-License-Identifier: Apache-2.0
// The bodies of functions of elements. Private: needs block.hpp's macros.
//
// Exact because the templates are the CPU's own, with one lane: each operation in them is one IEEE
// operation, or one on bits. A thread computes an element from its operands alone.
#pragma once

#include <cstdint>

#include "block.hpp"
#include "numeric/elementwise/functions.hpp"

namespace potl::cuda {

namespace lanes = numeric::elementwise;

/// y = Function(x); y may be x. An item of for_items().
template <numeric::unary Function, class Real>
struct one_operand {
  const Real* x;
  Real* y;
  POTL_BODY void operator()(std::uint64_t i) const {
    y[i] = lanes::compute<Function>(lanes::single<Real>(x[i])).v;
  }
};

/// out = Function(a, b), a function of two operands or a derivative; out may be either.
template <auto Function, class Real>
struct two_operands {
  const Real *a, *b;
  Real* out;
  POTL_BODY void operator()(std::uint64_t i) const {
    out[i] = lanes::compute<Function>(lanes::single<Real>(a[i]), lanes::single<Real>(b[i])).v;
  }
};

}  // namespace potl::cuda

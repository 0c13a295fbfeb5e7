// SPDX-License-Identifier: Apache-2.0
// What each instruction set offers: every function over contiguous elements.
#pragma once

#include <potl/numeric/detail/ieee.hpp>

#include "numeric/elementwise/kernels.hpp"

namespace potl::numeric::ieee {

using elementwise::stream;

enum class formula {
  square_root,
  soft_shrink,
  hard_swish,
  hard_swish_gradient,
  pass_between,
  pass_beyond,
  choose_below,
};

template <class Real>
struct kernels {
  void (*two)(ieee_binary, const stream<Real>* in, Real* out, std::size_t count);
  /// Of one to three operands and up to two numbers, as functions.hpp orders them.
  void (*elements)(formula, const stream<Real>* in, Real n, Real m, Real* out, std::size_t count);
};

using both_kernels = kernels_of_both<kernels>;

POTL_LEVELS(both_kernels, kernels)

}  // namespace potl::numeric::ieee

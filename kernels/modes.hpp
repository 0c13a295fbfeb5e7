// SPDX-License-Identifier: Apache-2.0
// Which arithmetics products have on a device. Private.
#pragma once

#include <potl/core/error.hpp>
#include <potl/numeric/arithmetic.hpp>

namespace potl::cuda {

/// Of the integer modes; 0 for ord32. Throws potl::exception (usage) for the others.
inline int integer_bits(numeric::arithmetic mode) {
  switch (mode) {
    case numeric::arithmetic::ord32: return 0;
    case numeric::arithmetic::xint24: return 24;
    case numeric::arithmetic::xint16: return 16;
    default:
      throw exception(
          {errc::usage, "this arithmetic has no CUDA form", "use ord32, xint24 or xint16"});
  }
}

}  // namespace potl::cuda

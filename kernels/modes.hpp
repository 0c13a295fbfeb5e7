// SPDX-License-Identifier: Apache-2.0
// Which arithmetics products have on a device. Private.
#pragma once

#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/arithmetic.hpp>
#include <potl/numeric/detail/rounding.hpp>

namespace potl::cuda {

/// How a product is computed.
struct product_form {
  numeric::arithmetic mode = numeric::arithmetic::ord32;
  int bits = numeric::max_rounding_bits;           ///< of log64's grid
  std::vector<numeric::near_tie>* ties = nullptr;  ///< of log64

  /// Of the integer modes; 0 for the others.
  int integer_bits() const {
    return mode == numeric::arithmetic::xint24 ? 24 : mode == numeric::arithmetic::xint16 ? 16 : 0;
  }
  /// Whether sums in double are rounded.
  bool is_rounded() const {
    return mode == numeric::arithmetic::cr32 || mode == numeric::arithmetic::log64;
  }
};

/// Of a mode that returns nothing but the product. Throws potl::exception (usage) for log64.
inline product_form plain_form(numeric::arithmetic mode) {
  if (mode == numeric::arithmetic::log64) {
    throw exception({errc::usage, "log64 has functions of its own", "call those with _log64"});
  }
  return {mode};
}

/// Throws potl::exception (usage) for bits that no grid has.
inline product_form logged_form(int bits, std::vector<numeric::near_tie>& ties) {
  if (bits < numeric::min_rounding_bits || bits > numeric::max_rounding_bits) {
    throw exception({errc::usage, "log64 rounds to 23 to 32 bits", ""});
  }
  return {numeric::arithmetic::log64, bits, &ties};
}

}  // namespace potl::cuda

// SPDX-License-Identifier: Apache-2.0
// xint24 and xint16: lines of an operand as integers, and sums of their products as floats again.
// For matrix products and for convolutions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "numeric/gemm/kernels.hpp"

namespace potl::numeric::detail {

/// So many products of integers of so many bits fit into an int64.
constexpr std::int64_t most_terms_of(int bits) noexcept {
  return std::int64_t{1} << (63 - 2 * (bits - 1));
}

/// The table that runs now, for products of so many terms.
const kernels_integer& active_integer(std::int64_t terms);

/// Factors to integers of so many bits, q = x * up, and back; 0 and NaN for lines that are not
/// finite.
struct scales {
  std::vector<double> up, down;
  bool are_short;  ///< of 16 bits, for integers of at most 255 * 128
  /// `largest`: the largest bits of |x|, per line.
  scales(std::span<const std::uint32_t> largest, int bits);
};

/// For integers of so many bits, which may be short.
inline const kernels_scaled& tiles_of(const kernels_integer& body, int bits,
                                      bool are_short = false) noexcept {
  if (are_short && body.bits16_short.multiply != nullptr) return body.bits16_short;
  return bits == 24 ? body.bits24 : body.bits16;
}

/// body.scale, and then what it leaves in doubt.
void scale_back(const kernels_integer& body, const scaling& sums);

}  // namespace potl::numeric::detail

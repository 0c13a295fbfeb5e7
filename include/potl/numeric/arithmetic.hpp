// SPDX-License-Identifier: Apache-2.0
// The arithmetic modes: what a matrix product means, bit for bit.
//
// `ord32`, `cr32`, `xint24` and `xint16` are functions of their operands alone; `log64` is one of
// its operands and of a rounding log (numeric/rounding_log.hpp). Everything but a dot
// product (sums, elementwise functions) is the same in all modes. The mode's name is part of the
// job. Sources: docs/reference/arithmetic.md; `log64` after Srivastava, Arora and Boneh,
// "Optimistic Verifiable Training by Controlling Hardware Nondeterminism" (2403.09603), section 5.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace potl::numeric {

enum class arithmetic {
  ord32,   ///< float32: chunks of 512 terms, in each one chain of fused multiply-adds in order
  cr32,    ///< the exact dot product, rounded once to float32
  log64,   ///< float64 in any order, rounded to a coarser grid; directions near ties are logged
  xint24,  ///< operands scaled to 24-bit integers, exact integer dot product, one rounding
  xint16,  ///< the same with 16 bits
};

/// All modes, in the order in which help and pages list them.
inline constexpr std::array arithmetics{arithmetic::ord32, arithmetic::cr32, arithmetic::log64,
                                        arithmetic::xint24, arithmetic::xint16};

/// Name of a mode as jobs write it, e.g. "ord32".
const char* to_string(arithmetic mode) noexcept;

/// The mode of that name; nothing for any other text.
std::optional<arithmetic> arithmetic_from(std::string_view name) noexcept;

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// A self-test of the floating-point arithmetic that this process really has.
//
// Claims: each check does the arithmetic at run time, on operands that the compiler cannot see, and
// compares the bits with what IEEE 754 demands. Where the processor has a control register (MXCSR),
// the cause names the bits in it. Assumes nothing; costs a microsecond.
// Speaks of the calling thread only: control registers are per thread, and new threads inherit them
// from the one that starts them. Loading a library that was linked with -ffast-math changes them
// for the thread that loads it.
// Cannot see: what code that was compiled elsewhere does with its own operands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace potl {

struct fp_check {
  std::string_view name;     ///< e.g. "rounding"
  std::string_view meaning;  ///< what has to hold
  bool ok = false;
  std::string cause;  ///< what was seen instead; empty when ok
};

/// All checks, in a fixed order: rounding, underflow, subnormal_inputs, contraction, association,
/// precision, extended, division, nan, traps.
std::vector<fp_check> fp_environment();

}  // namespace potl

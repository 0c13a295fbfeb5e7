// SPDX-License-Identifier: Apache-2.0
// A self-test of the floating-point arithmetic that this process really has.
//
// Claims: each check does the arithmetic at run time, on operands that the compiler cannot see, and
// compares the bits with what IEEE 754 demands. Where the processor has a control register (MXCSR),
// the cause names the bits in it. Assumes nothing; costs a microsecond.
// Control registers are per thread: new threads inherit them from the one that starts them, and
// loading a library that was linked with -ffast-math changes them for the thread that loads it. So
// the first form speaks of the calling thread only, the second of those of an executor.
// Cannot see: what code that was compiled elsewhere does with its own operands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <potl/numeric/detail/executor.hpp>

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

/// What this thread's control registers say of its arithmetic (MXCSR without its flags and the x87
/// unit's word; FPCR; else 0): as long as that is the same, so is what fp_environment() finds.
std::uint64_t fp_control() noexcept;

/// The same on the threads that work for an executor: a check is ok when it is on each. The cause
/// says on how many of them it is not. One task for each thread waits until all have begun, at most
/// 0.1 seconds: an executor that runs them one after the other is tested where it runs them. Do not
/// call it from a task of that executor.
std::vector<fp_check> fp_environment(const numeric::executor& workers);

}  // namespace potl

// SPDX-License-Identifier: Apache-2.0
// Which of potl's kernels run: the best that the processor has, or fewer by POTL_ISA.
//
// Claims: every kernel returns the same bits at every level; levels differ in speed only.
// `POTL_ISA=portable|neon|avx2|avx512|vnni|amx` caps potl's kernels (not torch's). A level that the
// processor lacks is never used, whatever the variable says.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace potl::numeric {

/// In ascending order: each level of a processor includes those before it.
enum class isa {
  portable,  ///< standard C++ only
  neon,      ///< vectors of 64-bit ARM, which all its processors have
  avx2,      ///< AVX2, FMA, F16C
  avx512,    ///< AVX-512 F, BW, DQ, VL
  vnni,      ///< and VNNI, IFMA
  amx,       ///< and AMX for int8, where the operating system grants it
};

const char* to_string(isa level) noexcept;
std::optional<isa> isa_from(std::string_view name) noexcept;

/// The best level of this processor.
isa processor_isa() noexcept;

/// The level whose kernels run now: the processor's, capped by POTL_ISA (read once, at first use)
/// or by cap_isa. Throws potl::exception (usage) when POTL_ISA names no level.
isa active_isa();

/// Caps the level for the whole process from now on; returns what is active then. For tests and
/// benchmarks; not while kernels run.
isa cap_isa(isa level);

/// Name of the processor as it calls itself, e.g. "AMD EPYC 9R14"; "unknown" if it has none.
std::string processor_name();

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// How likely a sample meets a cheat, and how large it must be.
//
// Claims: exact probabilities (relative error below 1e-9, populations up to 2^53) for drawing
// without replacement. The unit is the segment, and the worst placement is assumed: a cheat of a
// share f of the steps is packed into as few whole segments as hold it.
// Assumes: indices that the cheat could not predict, and a check that sees a bad unit for certain.
// Cost: at most a million terms, microseconds for what occurs in practice.
// Cannot detect: cheats smaller than one unit.
// Source: soundness.md "Sampling".
#pragma once

#include <cstdint>

namespace potl::statistics {

/// P(at least one of `bad` among `sampled` drawn without replacement from `units`). Both counts are
/// taken as at most `units`.
double detection_without_replacement(std::uint64_t units, std::uint64_t bad,
                                     std::uint64_t sampled) noexcept;

/// Segments that a cheat of this share of the steps spoils when it is packed: at least 1, else the
/// whole segments it fills.
std::uint64_t packed_units(std::uint64_t units, double cheat_fraction) noexcept;

/// detection_without_replacement for a cheat of `cheat_fraction` in the worst placement.
double strength(std::uint64_t segments, std::uint64_t sampled, double cheat_fraction) noexcept;

/// The smallest sample for which strength(...) >= probability; `segments` when only all of them do.
std::uint64_t samples_for(std::uint64_t segments, double probability,
                          double cheat_fraction) noexcept;

/// The smallest p for which `bad` bad units, each checked with probability p on its own, are met
/// with this probability: 1 - (1 - p)^bad.
double check_probability_for(double probability, double bad) noexcept;

}  // namespace potl::statistics

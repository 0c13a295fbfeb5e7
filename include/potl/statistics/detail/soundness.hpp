// SPDX-License-Identifier: Apache-2.0
// How likely a sample meets a cheat, and how large it must be.
//
// Claims: exact probabilities (relative error below 1e-9, populations up to 2^53) for drawing with
// and without replacement. The unit is the segment, and the worst placement is assumed: a cheat of
// a share f of the steps is packed into as few whole segments as hold it.
// Assumes: indices that the cheat could not predict, and a check that sees a bad unit for certain
// (or with a stated probability).
// Cost: at most a million terms, microseconds for what occurs in practice.
// Cannot detect: cheats smaller than one unit.
// Source: soundness.md "Sampling"; GINN (spot-check) for p; Fiat-Shamir sizing as in rule 1.
#pragma once

#include <cstdint>

namespace potl::statistics {

/// P(at least one of `bad` among `sampled` drawn without replacement from `units`). Both counts are
/// taken as at most `units`.
double detection_without_replacement(std::uint64_t units, std::uint64_t bad,
                                     std::uint64_t sampled) noexcept;

/// 1 - (1 - p)^m: `bad` independent bad units, each checked with probability `check_probability`.
double detection_with_replacement(double check_probability, double bad) noexcept;

/// Segments that a cheat of this share of the steps spoils when it is packed: at least 1, else the
/// whole segments it fills.
std::uint64_t packed_units(std::uint64_t units, double cheat_fraction) noexcept;

/// detection_without_replacement for a cheat of `cheat_fraction` in the worst placement.
double strength(std::uint64_t segments, std::uint64_t sampled, double cheat_fraction) noexcept;

/// The smallest sample for which strength(...) >= probability; `segments` when only all of them do.
std::uint64_t samples_for(std::uint64_t segments, double probability,
                          double cheat_fraction) noexcept;

/// ln(1 - probability) / ln(1 - cheat_fraction), rounded up: independent draws from a large
/// population.
std::uint64_t independent_samples_for(double probability, double cheat_fraction) noexcept;

/// Samples of a challenge that the prover derives from its own commitment and may redraw by
/// committing again 2^log2_attempts times, for a failure probability of 2^-security_bits.
std::uint64_t fiat_shamir_samples(double security_bits, double log2_attempts,
                                  double cheat_fraction) noexcept;

/// The smallest p with detection_with_replacement(p, bad) >= probability.
double check_probability_for(double probability, double bad) noexcept;

}  // namespace potl::statistics

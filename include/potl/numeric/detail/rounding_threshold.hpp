// SPDX-License-Identifier: Apache-2.0
// The threshold tau of the rounding log as published, which has it instead of a bound, and one of
// three symbols for every value. Kept for comparison; potl's own form is rounding_log.hpp.
//
// A value is logged when it lies more than tau grid steps from the number it is rounded to, tau in
// [0.25, 0.5]: 0.5 logs nothing, 0.25 half of all values. tau is searched per type of layer from
// what two devices computed.
// Cannot: promise anything about values that the search has not seen.
// Source: Srivastava, Arora, Boneh, Optimistic Verifiable Training (2403.09603), sections 4 and 5.
#pragma once

#include <cstdint>
#include <span>

namespace potl::numeric {

/// Distance of x from Rnd_b(x) in steps of the grid at x: 0 to 0.5.
double grid_distance(double x, int bits) noexcept;

struct threshold {
  double tau = 0.25;
  std::uint64_t mismatches = 0;  ///< values that the two round differently
  std::uint64_t uncovered = 0;   ///< of those: not logged at this tau (only where 0.25 is too high)
  double logged = 0;             ///< share of the values that are logged at this tau
};

/// The largest tau, to 0.25 / 2^rounds, at which `trainer` would have logged every value that
/// `auditor` rounds differently: bisection between 0.25 and 0.5. Equal sizes, before rounding.
threshold search_threshold(std::span<const double> trainer, std::span<const double> auditor,
                           int bits, int rounds = 20);

}  // namespace potl::numeric

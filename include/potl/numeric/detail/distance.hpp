// SPDX-License-Identifier: Apache-2.0
// Norms of what lies between three versions of one tensor: start, recorded, replayed.
//
// Claims: accumulated in double in a fixed order, so that the same bits give the same numbers
// everywhere. A NaN that only one of recorded and replayed has makes `finite` false, and so does
// what stands for an infinity, unless it is left out; no comparison with such a number is true.
// Cost: one pass, about a nanosecond per element; no copies.
// Cannot detect: whether a difference matters.
// Source: H. Jia et al., Proof-of-Learning (2103.05633), section IV-B; soundness.md rules 6 and 7.
#pragma once

#include <cstdint>
#include <vector>

#include <potl/core/digest.hpp>
#include <potl/core/dtype.hpp>

namespace potl::numeric {

/// Norms over the elements of one tensor.
struct norms {
  double l1 = 0, l2 = 0, linf = 0;  ///< of replayed - recorded
  double dot = 0;                   ///< (replayed - start) . (recorded - start)
  double update_l2 = 0, replayed_update_l2 = 0, weight_l2 = 0;
  double rounding_l2 = 0;     ///< of the allowance of every element
  double excess_l2 = 0;       ///< of what exceeds it; an element that the replay left has none
  bool rounding_only = true;  ///< no element is off by more, one that the replay left included
  bool finite = true;
};

/// What rounding may do to an element: so many units of roundoff of the larger of its values at the
/// start and in the replay. The recorded value, which the prover chooses, has no say.
inline constexpr double rounding_allowance = 4;

/// `start` may be empty, which stands for zeros. `roundings` is how many times the allowance
/// counts. `without_infinities`: one that recorded or replayed alone has counts as 0. Precondition:
/// equal sizes, multiples of the element size. Of 64-bit integers there are no `dot` and
/// `weight_l2`.
norms tensor_norms(dtype type, bytes_view start, bytes_view recorded, bytes_view replayed,
                   double roundings = 1, bool without_infinities = false);

/// How many elements of so many bytes differ, and how many either side moved: numbers of them,
/// where other norms are roots of sums of squares.
norms places(std::size_t size, bytes_view start, bytes_view recorded, bytes_view replayed);

/// Whether there are more than two elements of so many bytes, the replay has no more than two
/// different ones, and the record has no others. Whoever differs then has not rounded otherwise.
bool is_mask(std::size_t size, bytes_view recorded, bytes_view replayed);

/// -1, 0 or 1 of each number, as 8-bit integers: a complex element is two.
std::vector<std::uint8_t> signs_of_infinities(dtype type, bytes_view values);

/// What is as large stands for an infinity, such as the largest of all where no best value is
/// known: that of a float32 and of a bfloat16, too.
inline constexpr double furthest = 1e38;

/// How far a tensor moved, l2.
struct moved {
  double numbers = 0;  ///< an infinity counts as 0; NaN: there is one that did not stay
  double came = 0;     ///< of infinities alone, 1 for each: masks that close
  double went = 0;     ///< masks that open
};

/// Either may be empty, which stands for zeros. Otherwise as tensor_norms, faster.
moved movement(dtype type, bytes_view before, bytes_view after);

/// Distance of two adjacent representable numbers near 1, halved: 2^-24 for f32. 0 for integers.
double unit_roundoff(dtype type) noexcept;

/// The smallest number above zero of a floating-point type; 0 for others.
double smallest(dtype type) noexcept;

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Rounding to b bits, and how near an unrounded sum is to a tie: what the mode log64 is made of.
//
// Rnd_b (b = 23 ... 32) rounds to the nearest number with the exponents of float32 and b - 8
// significant bits, ties to even: b counts sign, 8 exponent bits and the stored fraction, so that
// Rnd_32 is float32 and Rnd_26 keeps 18 significant bits. Subnormals belong to the grid, what
// rounds to 2^128 or more is infinite, NaN is canonical, and a zero is +0 (else the sign of
// rounding noise would show).
//
// Claims, for a dot product of `terms` float32 pairs whose exact value is s:
//   * products are exact in double. A sum in which every product passes at most
//     summation_depth(terms) roundings differs from s by less than E = error_bound(terms, |a|,
//     |b|): chunks of log64_chunk(terms), one chain in each, chunk sums added in a chain, have this
//     depth, whatever the order of the terms. (1 + u)^n - 1 <= n u (1 + 2 n u), u = 2^-53, n <=
//     2^25; the 4 added to n pays for that, for rounding E itself, and for testing Rnd(x - W) !=
//     Rnd(x + W) in double instead of computing a distance.
//   * norm() is at least the Euclidean norm, and it and E are the same bits everywhere: one fixed
//     list of double operations. E is 0 for one term and where sum_is_exact() proves exactness.
//   * W = 2 E: trainer's error and auditor's.
// Assumes round-to-nearest without flush-to-zero (numeric/detail/fp_environment.hpp).
// Cost: a few nanoseconds per call; norm() reads the row once.
// Cannot see: whether a kernel keeps to the depth. docs/reference/gemm.md says how each does.
// Source: Srivastava, Arora, Boneh, Optimistic Verifiable Training (2403.09603), section 4; Higham,
// Accuracy and Stability of Numerical Algorithms, chapter 4.
#pragma once

#ifdef __FAST_MATH__
#error "potl's rounding needs IEEE arithmetic: compile without -ffast-math"
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <potl/numeric/detail/anywhere.hpp>

namespace potl::numeric {

inline constexpr int min_rounding_bits = 23;
inline constexpr int max_rounding_bits = 32;

/// Terms of a chunk in a sum of so many.
constexpr std::int64_t log64_chunk(std::int64_t terms) noexcept {
  return terms <= 32768 ? 128 : 256;  // beyond, 256 makes the smaller depth
}

/// An element of an operator's result that lies within the window of a tie.
struct near_tie {
  std::uint64_t index = 0;  ///< row * columns + column, or the contiguous index of the output
  double value = 0;         ///< the sum before rounding
  double window = 0;        ///< W of this element

  friend bool operator==(const near_tie&, const near_tie&) = default;
};

/// The distance of adjacent numbers of the grid in the binade of x. Precondition: x finite.
POTL_ANYWHERE inline double grid_spacing(double x, int bits) noexcept {
  const auto biased = static_cast<int>((std::bit_cast<std::uint64_t>(x) >> 52) & 0x7ff);
  const int exponent = std::clamp(biased - 1023, -126, 127) - (bits - 9);
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// Rnd_b(x).
POTL_ANYWHERE inline float round_to(double x, int bits) noexcept {
  if (x != x) return std::numeric_limits<float>::quiet_NaN();
  if (bits == max_rounding_bits) return static_cast<float>(x) + 0.0F;
  const double size = std::fabs(x);
  if (size >= 0x1p128) return static_cast<float>(x);
  // Adding 1.5 * 2^52 grid steps leaves a double no bit below the grid, so the sum rounds to it.
  const double shift = 0x1.8p52 * grid_spacing(x, bits);
  const double rounded = (size + shift) - shift;
  return static_cast<float>(std::signbit(x) ? -rounded : rounded) + 0.0F;
}

/// The tie that is nearest to some x, and the two numbers of the grid around it.
struct tie {
  float lower = 0;
  float upper = 0;
  double midpoint = 0;
  double distance = 0;  ///< |x - midpoint|: exact below 2^128, infinite or NaN where x is
};

POTL_ANYWHERE inline tie nearest_tie(double x, int bits) noexcept {
  const double size = std::fabs(x);
  double step = grid_spacing(x, bits);
  double low = 0;
  if (!(size < 0x1p128)) {
    low = 0x1p128 - step;  // above the last tie, the one between the largest number and infinity
  } else {
    low = std::floor(size / step) * step;
    // Just above a power of two the tie below it is nearer: steps are half as wide there.
    const bool power_of_two = (std::bit_cast<std::uint64_t>(low) & 0xfffffffffffffULL) == 0;
    if (power_of_two && low > 0x1p-126 && size - low < 0.125 * step) {
      step *= 0.5;
      low -= step;
    }
  }
  tie out;
  out.midpoint = low + 0.5 * step;
  out.distance = std::fabs(size - out.midpoint);
  out.lower = static_cast<float>(low);
  out.upper = static_cast<float>(low + step);
  if (std::signbit(x)) {
    out = {-out.upper, -out.lower + 0.0F, -out.midpoint, out.distance};
  }
  return out;
}

/// How many roundings a product passes at most in a chunked sum of so many terms.
constexpr std::int64_t summation_depth(std::int64_t terms) noexcept {
  if (terms <= 1) return 0;
  const std::int64_t chunk = log64_chunk(terms);
  return std::min(terms, chunk) + (terms + chunk - 1) / chunk - 2;
}

/// E / (|a| |b|), exactly representable.
constexpr double error_factor(std::int64_t terms) noexcept {
  return terms <= 1 ? 0.0 : static_cast<double>(summation_depth(terms) + 4) * 0x1p-53;
}

/// E. A kernel may compute error_factor * |a| once per row, and times |b| for each element.
constexpr double error_bound(std::int64_t terms, double norm_a, double norm_b) noexcept {
  return error_factor(terms) * norm_a * norm_b;
}

/// W.
constexpr double tie_window(std::int64_t terms, double norm_a, double norm_b) noexcept {
  return 2 * error_bound(terms, norm_a, norm_b);
}

/// The lanes of norm(): lane j adds the squares of elements j, j + 8, j + 16, ... in order (squares
/// are exact in double, so with or without FMA), and lanes are added as a tree.
inline constexpr int norm_lanes = 8;

constexpr double combine_norm_lanes(const double (&lane)[norm_lanes]) noexcept {
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/// The norm from the combined sum of squares, rounded up.
POTL_ANYWHERE inline double norm_of_squares(double squares, std::int64_t terms) noexcept {
  return std::sqrt(squares) * (1 + static_cast<double>(terms + 16) * 0x1p-53);
}

/// An upper bound of the Euclidean norm of x[0], x[stride], ...
inline double norm(const float* x, std::int64_t terms, std::int64_t stride = 1) noexcept {
  double lane[norm_lanes] = {};
  std::int64_t at = 0;
  for (; at + norm_lanes <= terms; at += norm_lanes) {
    for (int j = 0; j < norm_lanes; ++j) {
      const double value = x[(at + j) * stride];
      lane[j] += value * value;
    }
  }
  for (int j = 0; at + j < terms; ++j) {
    const double value = x[(at + j) * stride];
    lane[j] += value * value;
  }
  return norm_of_squares(combine_norm_lanes(lane), terms);
}

/// The exponent of the largest power of two of which x is a multiple; 1024 for 0.
POTL_ANYWHERE inline int quantum_exponent(float x) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(x) & 0x7fffffffU;
  if (word == 0) return 1024;
  const std::uint32_t biased = word >> 23;
  const std::uint32_t fraction = (word & 0x7fffffU) | (biased == 0 ? 0U : 0x800000U);
  return static_cast<int>(biased == 0 ? 1U : biased) - 150 + trailing_zeros(fraction);
}

/// The largest power of two of which all x are multiples; infinite when all are 0.
inline double quantum(const float* x, std::int64_t terms, std::int64_t stride = 1) noexcept {
  int least = 1024;
  for (std::int64_t i = 0; i < terms; ++i) least = std::min(least, quantum_exponent(x[i * stride]));
  return least == 1024 ? std::numeric_limits<double>::infinity() : std::ldexp(1.0, least);
}

/// Whether every partial sum of the products, in any order, is exact in double: all are multiples
/// of quantum_a * quantum_b, and none exceeds 2^52 of it.
constexpr bool sum_is_exact(double norm_a, double norm_b, double quantum_a,
                            double quantum_b) noexcept {
  return norm_a * norm_b <= 0x1p52 * quantum_a * quantum_b;
}

/// What log64 does with an element.
enum class tie_class {
  clear,  ///< farther than W from every tie: Rnd_b(x) is the rounding of the exact value too
  near,   ///< logged, unless the sum is exact
  exact,  ///< W reaches a quarter of the grid's step, or is not finite: the exact value is rounded
};

POTL_ANYWHERE inline tie_class classify(double x, double window, int bits) noexcept {
  if (!(std::isfinite(x) && std::isfinite(window))) return tie_class::exact;
  if (!(window > 0)) return tie_class::clear;  // the sum is exact, and ties go to even
  if (nearest_tie(x, bits).distance > window) return tie_class::clear;
  // The step of the smallest binade in reach: the exact value may lie in the one below x.
  const double reach = std::max(std::fabs(x) - window, 0.0);
  return window < 0.25 * grid_spacing(reach, bits) ? tie_class::near : tie_class::exact;
}

}  // namespace potl::numeric

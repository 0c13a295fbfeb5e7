// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transforms along one dimension.
//
// Claims: y[k] = factor * sum over j of x[j] exp(-+2 pi i j k / length), computed in double by one
// list of additions and multiplications that depends on the length alone: same bits for any number
// of threads, instruction set, stride and neighbour. Error: a few units of 2^-53, times the root of
// the sum of |x|^2 and the logarithm of the length. NaN results are the canonical NaN.
//   - Lengths without a prime factor above 13: passes of Stockham's algorithm, factors 4 first,
//   then
//     2, 3, 5, 7, 11 and 13. Roots of unity are potl's sine and cosine of an angle of the first
//     octant, by symmetry.
//   - Other lengths: a convolution with the chirp exp(-pi i j^2 / length) over the next power of
//     two that holds it (Bluestein).
//   - An even number of real numbers is half as many complex ones, x[2j] + x[2j + 1] i, whose
//     transform is folded with its mirror image, once after it, or before it to real numbers.
//   - Backward is forward with real and imaginary parts exchanged before and after.
// Cost: O(length log length) operations, of an even number of real numbers half as many, and for
// each thread 32 bytes an element; of Bluestein's convolution, an element of its power of two,
// which is below 4 length. Above 2^20 such elements one thread computes all lines. Assumes
// round-to-nearest without flush-to-zero.
#pragma once

#include <cstdint>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

struct fourier_shape {
  std::int64_t outer = 1;
  std::int64_t length = 1;  ///< of the transform; a half spectrum has length / 2 + 1 numbers
  std::int64_t inner = 1;
};

/// What goes in and what comes out: complex numbers are pairs (real part, imaginary part).
enum class fourier_kind {
  complex,    ///< complex numbers on both sides
  from_real,  ///< real numbers; the first half of the spectrum, whose rest is its conjugate
  to_real,    ///< such a half, where imaginary parts of numbers that mirror themselves are ignored
};

/// x and y are [outer][length or half of it][inner], rounded once where y is single. They may be
/// the same memory if both are complex doubles.
/// Throws potl::exception: usage for a negative size, or a length of 0 or of more than 2^30;
/// unsupported for one of more than 2^24 that has a prime factor above 13, where an even number of
/// real numbers counts half.
void fourier(const fourier_shape& shape, fourier_kind kind, bool backward, double factor,
             const float* x, float* y, const executor& workers);
void fourier(const fourier_shape& shape, fourier_kind kind, bool backward, double factor,
             const float* x, double* y, const executor& workers);
void fourier(const fourier_shape& shape, fourier_kind kind, bool backward, double factor,
             const double* x, float* y, const executor& workers);
void fourier(const fourier_shape& shape, fourier_kind kind, bool backward, double factor,
             const double* x, double* y, const executor& workers);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Operations with one exact definition for which libraries have several implementations: square
// roots, remainders, maxima, gates, choices, evenly spaced values.
//
// Claims: the same bits everywhere. Each result is the exact one, rounded once, except where a
// formula is given: there every operation is rounded for itself, in the order written.
//   square_root   IEEE 754
//   fmod          x - y trunc(x / y), exact
//   remainder     r = fmod(x, y); r != 0 and the signs of r and y differ: r + y  (Python's %)
//   floor_divide  Python's //: q = (x - fmod(x, y)) / y, 1 less when the signs of r != 0 and y
//                 differ, rounded to the integer that it means; x / y where y is 0
//   trunc_divide  trunc(x / y)
//   maximum, minimum  NaN wins; of zeros with different signs +0 is larger
//   fmax, fmin        the same, but a number wins over NaN
//   soft_shrink       x - lambda above lambda, x + lambda below -lambda, +0 between; NaN stays
//   hard_swish    min(max(x + 3, 0), 6) x / 6
//   hard_swish_gradient  0 below -3, (x / 3 + 1/2) dy up to 3, else dy (where x is NaN too)
//   pass_between      value where low < x < high, else +0 (where x is NaN too)
//   pass_beyond       value where x < low or x > high, else +0 (where x is NaN too)
// NaN results are canonical (0x7fc00000, 0x7ff8000000000000).
// Assumes round-to-nearest without flush-to-zero. Spans have equal lengths (else potl::exception,
// usage); an input of one element stands for that element everywhere; an output may be an input.
#pragma once

#include <cstdint>
#include <span>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

enum class ieee_binary {
  fmod,
  remainder,
  floor_divide,
  trunc_divide,
  maximum,
  minimum,
  fmax,
  fmin,
};

void square_root(std::span<const float> x, std::span<float> y, const executor& workers);
void square_root(std::span<const double> x, std::span<double> y, const executor& workers);

void apply(ieee_binary function, std::span<const float> x, std::span<const float> y,
           std::span<float> out, const executor& workers);
void apply(ieee_binary function, std::span<const double> x, std::span<const double> y,
           std::span<double> out, const executor& workers);

/// out[i] = where[i] != 0 ? yes[i] : no[i], of any bits.
void choose(std::span<const std::uint8_t> where, std::span<const std::uint32_t> yes,
            std::span<const std::uint32_t> no, std::span<std::uint32_t> out,
            const executor& workers);
void choose(std::span<const std::uint8_t> where, std::span<const std::uint64_t> yes,
            std::span<const std::uint64_t> no, std::span<std::uint64_t> out,
            const executor& workers);

/// out[i] = x[i] < bound ? yes[i] : no[i]. Bounds, here and below, are rounded to the element type.
void choose_below(std::span<const float> x, double bound, std::span<const float> yes,
                  std::span<const float> no, std::span<float> out, const executor& workers);
void choose_below(std::span<const double> x, double bound, std::span<const double> yes,
                  std::span<const double> no, std::span<double> out, const executor& workers);

/// lambda is finite in the element type.
void soft_shrink(std::span<const float> x, double lambda, std::span<float> out,
                 const executor& workers);
void soft_shrink(std::span<const double> x, double lambda, std::span<double> out,
                 const executor& workers);

void hard_swish(std::span<const float> x, std::span<float> y, const executor& workers);
void hard_swish(std::span<const double> x, std::span<double> y, const executor& workers);
void hard_swish_gradient(std::span<const float> dy, std::span<const float> x, std::span<float> dx,
                         const executor& workers);
void hard_swish_gradient(std::span<const double> dy, std::span<const double> x,
                         std::span<double> dx, const executor& workers);

struct bounds {
  double low = 0;
  double high = 0;
};

void pass_between(std::span<const float> value, std::span<const float> x, bounds of,
                  std::span<float> out, const executor& workers);
void pass_between(std::span<const double> value, std::span<const double> x, bounds of,
                  std::span<double> out, const executor& workers);
void pass_beyond(std::span<const float> value, std::span<const float> x, bounds of,
                 std::span<float> out, const executor& workers);
void pass_beyond(std::span<const double> value, std::span<const double> x, bounds of,
                 std::span<double> out, const executor& workers);

/// out[i] = start + i step, in double with two roundings, then rounded to the element type.
void fill_steps(double start, double step, std::span<float> out, const executor& workers);
void fill_steps(double start, double step, std::span<double> out, const executor& workers);

/// n values from start to end: with step = (end - start) / (n - 1), the first half is start + i
/// step, the second end - (n - 1 - i) step, as fill_steps rounds. One value is start.
void fill_line(double start, double end, std::span<float> out, const executor& workers);
void fill_line(double start, double end, std::span<double> out, const executor& workers);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Products, quotients and magnitudes of complex numbers: pairs (real part, imaginary part).
//
// Claims: the same bits everywhere. Single numbers are computed in double and rounded once at the
// end; in doubles every operation is rounded for itself, in the order written. With z = a + bi and
// w = c + di:
//   product    (a c - b d) + (a d + b c) i
//   quotient   Smith's: if |c| >= |d|, with r = d / c and t = c + d r, ((a + b r) / t) +
//              ((b - a r) / t) i; else with r = c / d and t = d + c r, ((a r + b) / t) +
//              ((b r - a) / t) i
//   magnitude  single: sqrt(a a + b b); double: m sqrt(1 + (n / m)^2), m the larger one of |a| and
//              |b|, n the other; infinite if one of them is, 0 if both are
//   direction  z over its magnitude before that is rounded; 0 if that is 0
// NaN results are canonical. Assumes round-to-nearest without flush-to-zero. Spans of numbers have
// equal lengths (else potl::exception, usage); an output may be an input.
#pragma once

#include <span>

#include <potl/numeric/detail/executor.hpp>

namespace potl::numeric {

enum class complex_binary { product, quotient };

void apply(complex_binary function, std::span<const float> z, std::span<const float> w,
           std::span<float> out, const executor& workers);
void apply(complex_binary function, std::span<const double> z, std::span<const double> w,
           std::span<double> out, const executor& workers);

/// `out` has one element for each pair.
void magnitudes(std::span<const float> z, std::span<float> out, const executor& workers);
void magnitudes(std::span<const double> z, std::span<double> out, const executor& workers);

void directions(std::span<const float> z, std::span<float> out, const executor& workers);
void directions(std::span<const double> z, std::span<double> out, const executor& workers);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Samples of distributions whose parameters are tensors: gamma, Dirichlet, Poisson, binomial and
// categorical ones, and how gamma and Dirichlet samples move with their parameters.
//
// Claims: element i is a function of (key, start + i) and of its own parameters (of its row's, for
// Dirichlet and categorical ones), however often it was rejected. Bits, assumptions and limits as
// in numeric/detail/random.hpp. docs/format/randomness.md has the definition.
// Cost: 50 to 500 nanoseconds per element; gradients as much, up to some tens of microseconds where
// parameters are large.
// Sources: Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26
// (2000); Hoermann, "The transformed rejection method for generating Poisson random variables",
// Insurance: Mathematics and Economics 12 (1993), and "The generation of binomial random variates",
// Journal of Statistical Computation and Simulation 46 (1993).
//
// Spans of other lengths, and parameters that are named as needed, throw potl::exception (usage).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <potl/core/detail/rng.hpp>

namespace potl {

/// Of that shape and of scale 1, at least the smallest normal number of the type. Infinite of an
/// infinite shape, NaN of a negative one.
void fill_gamma(std::span<float> out, std::span<const double> shapes, random_key key,
                std::uint64_t start);
void fill_gamma(std::span<double> out, std::span<const double> shapes, random_key key,
                std::uint64_t start);

/// Rows of `columns` shares that add up to 1, each from the smallest normal number of the type to
/// the one before 1. NaN where a shape is negative or not finite, or all are 0.
void fill_dirichlet(std::span<float> out, std::span<const double> shapes, std::size_t columns,
                    random_key key, std::uint64_t start);
void fill_dirichlet(std::span<double> out, std::span<const double> shapes, std::size_t columns,
                    random_key key, std::uint64_t start);

/// Needs finite rates >= 0.
void fill_poisson(std::span<double> out, std::span<const double> rates, random_key key,
                  std::uint64_t start);

/// Successes of so many trials, whole numbers of 0 or more. Needs probabilities in [0, 1].
void fill_binomial(std::span<double> out, std::span<const double> trials,
                   std::span<const double> probabilities, random_key key, std::uint64_t start);

/// Numbers of categories, with replacement: never one whose weight is 0. Needs finite weights >= 0
/// with a finite sum above 0.
void fill_categories(std::span<std::int64_t> out, std::span<const double> weights, random_key key,
                     std::uint64_t start);

namespace numeric {

/// The derivative of a gamma sample x by its shape, at the same quantile. Relative error below
/// 1e-6, and below 1e-9 for shapes up to 2^14. NaN unless x >= 0 and 0 < shape, both finite.
double gamma_gradient(double shape, double x) noexcept;

/// The derivative of a share x of a Dirichlet sample by its own shape, at the same quantile of its
/// marginal distribution, over 1 - x; `total` is the sum of the row's shapes. Relative error below
/// 1e-5, and below 1e-9 for totals up to 2^20; where the other shapes are less than 1e-6 of the
/// total, below 1e-14 total / (total - shape). Of a shape that equals the total, because the others
/// were rounded away: the limit for others of 0. NaN unless 0 <= x <= 1 and 0 < shape <= total.
double dirichlet_gradient(double x, double shape, double total) noexcept;

}  // namespace numeric

}  // namespace potl

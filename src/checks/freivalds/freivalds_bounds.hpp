// SPDX-License-Identifier: Apache-2.0
// What an honest residual may be, and the comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <potl/checks/freivalds.hpp>
#include <potl/core/detail/rng.hpp>

namespace potl::checks::freivalds_detail {

template <class Real>
constexpr double unit_of = sizeof(Real) == 4 ? 0x1p-24 : 0x1p-53;
/// What one product may lose where small numbers are flushed to zero.
template <class Real>
constexpr double least_of = sizeof(Real) == 4 ? 0x1p-126 : 0x1p-1022;

/// k u / (1 - k u), which bounds the relative error of a sum of k products in any order; infinite
/// where it bounds nothing.
double gamma(double terms, double unit) noexcept;

/// P(|N| > this) <= probability / cases, N normal: P(|N| > z) <= exp(-z^2 / 2).
double gauge(double cases, double probability) noexcept;

/// P(|r E s| > this |E|) <= probability / cases, for vectors r and s of normal numbers and any
/// matrix E of length |E| (Frobenius): P(|r E s| > x |E|) <= 2 sqrt(x) exp(1/2 - x), for x >= 1.
double gauge_of_pairs(double cases, double probability) noexcept;

/// Throws usage for options out of range.
void validate(const freivalds_options& options);

/// The secret vectors: normal numbers, one sequence for each draw. Philox suffices, because nobody
/// who computes a product sees any of its numbers; its 128 bits of key are secret and fresh.
class probes {
 public:
  explicit probes(const std::optional<digest>& key);
  void draw(std::span<double> out);

 private:
  random_key key_;
  std::uint64_t drawn_ = 0;
};

/// The sizes behind the bounds of one kind of product.
struct limits {
  double depth = 0;    ///< terms of each sum
  double unit = 0;     ///< of the arithmetic
  double stored = 0;   ///< of the results
  double least = 0;    ///< absolute error of a term where numbers underflow
  double own = 0;      ///< the verifier's error, as a share of |A| |B|
  double z = 0;        ///< deviations that an honest residual stays within
  double columns = 0;  ///< of C

  /// `z`, for so many residuals, and `own`, where the verifier sums in float64.
  void set_gauge(double residuals, double false_alarm) noexcept;
  /// The same for vectors that are products r_o s_t, of `columns / taps` and `taps` numbers.
  void set_gauge_of_pairs(double residuals, double taps, double false_alarm) noexcept;
};

/// All but `z` and `own`, of a sum of `depth` products in each of `columns` columns, for float or
/// double. Throws usage where no bound is known.
template <class Real>
limits limits_of(std::int64_t depth, std::int64_t columns, const freivalds_options& options);

/// What is usual, as a multiple of the unit: of |A| |B| for sums whose terms differ in sign, and of
/// |C| for those whose terms do not. `scripts/experiment freivalds` has the measurements.
constexpr double usual_of_terms = 4, usual_of_results = 16;

/// Compares residuals, and keeps the worst. Every comparison that no number decides is not finite.
class comparison {
 public:
  explicit comparison(const limits& what) noexcept
      : limits_(what), gamma_(gamma(what.depth, what.unit)) {}

  /// `residuals` of one row for all vectors, `stride` apart. `terms`: |A_i| times the norms of B's
  /// rows; `result`: the norm of C's row.
  void row(std::int64_t row, const double* residuals, std::size_t stride, int vectors, double terms,
           double result) noexcept;

  /// One residual with its bounds. `terms`: what its rounding is a share of.
  void add(std::int64_t row, double residual, double sound, double usual, double terms) noexcept;

  freivalds_result finish(double false_alarm) noexcept;

 private:
  limits limits_;
  double gamma_;
  double squares_ = 0;
  freivalds_result out_;
};

}  // namespace potl::checks::freivalds_detail

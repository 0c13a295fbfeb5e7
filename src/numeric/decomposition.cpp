// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/decomposition.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

#include "reflections.hpp"

namespace potl::numeric {
namespace {

void swap_rows(const double_matrix& a, std::int64_t one, std::int64_t other) {
  if (one == other) return;
  for (std::int64_t j = 0; j < a.columns; ++j) std::swap(a(one, j), a(other, j));
}
/// Row `to` less factor times row `from`, right of `first`.
void subtract(const double_matrix& a, std::int64_t to, double factor, const double_matrix& b,
              std::int64_t from, std::int64_t first = 0) {
  for (std::int64_t j = first; j < a.columns; ++j) a(to, j) -= factor * b(from, j);
}
void divide(const double_matrix& b, std::int64_t row, double by) {
  for (std::int64_t j = 0; j < b.columns; ++j) b(row, j) /= by;
}

/// The exponent of the largest element of a column; 0 where all are 0, or one is not finite.
int exponent_of(const double_matrix& a, std::int64_t column) {
  double largest = 0.0;
  for (std::int64_t i = 0; i < a.rows; ++i) {
    const double size = std::fabs(a(i, column));
    if (!std::isfinite(size)) return 0;
    largest = std::max(largest, size);
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  return exponent;
}
void scale(const double_matrix& a, std::int64_t column, int exponent) {
  for (std::int64_t i = 0; i < a.rows; ++i) a(i, column) = std::ldexp(a(i, column), exponent);
}

}  // namespace

std::int32_t lu_factor(const double_matrix& a, std::span<std::int32_t> pivots) noexcept {
  std::int32_t info = 0;
  for (std::int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < a.rows; ++i) {
      if (std::fabs(a(i, k)) > std::fabs(a(pivot, k))) pivot = i;
    }
    pivots[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(pivot + 1);
    swap_rows(a, k, pivot);
    if (a(k, k) == 0.0) {
      if (info == 0) info = static_cast<std::int32_t>(k + 1);
      continue;
    }
    for (std::int64_t i = k + 1; i < a.rows; ++i) {
      a(i, k) /= a(k, k);
      subtract(a, i, a(i, k), a, k, k + 1);
    }
  }
  return info;
}

void lu_solve(const double_matrix& lu, std::span<const std::int32_t> pivots, bool transposed,
              const double_matrix& b) noexcept {
  const std::int64_t n = lu.rows;
  if (!transposed) {
    for (std::int64_t k = 0; k < n; ++k) swap_rows(b, k, pivots[static_cast<std::size_t>(k)] - 1);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < i; ++k) subtract(b, i, lu(i, k), b, k);
    }
    for (std::int64_t i = n; i-- > 0;) {
      for (std::int64_t k = i + 1; k < n; ++k) subtract(b, i, lu(i, k), b, k);
      divide(b, i, lu(i, i));
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = 0; k < i; ++k) subtract(b, i, lu(k, i), b, k);
    divide(b, i, lu(i, i));
  }
  for (std::int64_t i = n; i-- > 0;) {
    for (std::int64_t k = i + 1; k < n; ++k) subtract(b, i, lu(k, i), b, k);
  }
  for (std::int64_t k = n; k-- > 0;) swap_rows(b, k, pivots[static_cast<std::size_t>(k)] - 1);
}

std::int32_t cholesky(const double_matrix& a) noexcept {
  std::int32_t info = 0;
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j <= i && info == 0; ++j) {
      double rest = a(i, j);
      for (std::int64_t k = 0; k < j; ++k) rest -= a(i, k) * a(j, k);
      if (j < i) {
        a(i, j) = rest / a(j, j);
      } else if (rest > 0.0) {
        a(i, i) = std::sqrt(rest);
      } else {
        info = static_cast<std::int32_t>(i + 1);
      }
    }
    for (std::int64_t j = i + 1; j < a.columns; ++j) a(i, j) = 0.0;
  }
  return info;
}

void qr(const double_matrix& a, const double_matrix& q) {
  const std::int64_t steps = std::min(a.rows, a.columns);
  std::vector<std::vector<double>> vectors;
  std::vector<double> taus, sums;
  std::vector<int> exponents;
  for (std::int64_t j = 0; j < a.columns; ++j) {
    exponents.push_back(exponent_of(a, j));
    scale(a, j, -exponents.back());
  }
  for (std::int64_t k = 0; k < steps; ++k) {
    std::vector<double> v;
    for (std::int64_t i = k; i < a.rows; ++i) v.push_back(a(i, k));
    const reflection of = reflection_of(v);
    if (of.tau != 0.0) {
      reflect(a, v, of.tau, k, k + 1, a.columns, sums);
      a(k, k) = of.value;
      for (std::int64_t i = k + 1; i < a.rows; ++i) a(i, k) = 0.0;
    }
    vectors.push_back(std::move(v));
    taus.push_back(of.tau);
  }
  for (std::int64_t j = 0; j < a.columns; ++j) {
    scale(a, j, exponents[static_cast<std::size_t>(j)]);
  }
  for (std::int64_t i = 0; i < q.rows; ++i) {
    for (std::int64_t j = 0; j < q.columns; ++j) q(i, j) = i == j ? 1.0 : 0.0;
  }
  for (std::int64_t k = steps; k-- > 0;) {
    const auto at = static_cast<std::size_t>(k);
    if (taus[at] != 0.0) reflect(q, vectors[at], taus[at], k, 0, q.columns, sums);
  }
}

}  // namespace potl::numeric

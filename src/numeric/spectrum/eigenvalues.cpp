// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/spectrum.hpp>

#include <algorithm>
#include <numeric>

#include "numeric/ranges.hpp"
#include "numeric/reflections.hpp"
#include "numeric/spectrum/vectors.hpp"

namespace potl::numeric {
namespace {

using namespace spectrum_detail;

/// Two-sided reflections, column after column: A - v w^T - w v^T, with w = p - (tau / 2) (p v) v
/// and p = tau A v.
two_diagonals tridiagonal_of(const double_matrix& a, reflections& taken, const executor& workers) {
  two_diagonals out;
  std::vector<double> w;
  for (std::int64_t k = 0; k < a.rows; ++k) {
    out.diagonal.push_back(a(k, k));
    std::vector<double> v(&a(k, k) + 1, &a(k, k) + a.rows - k);
    const reflection of = v.empty() ? reflection{0.0, 0.0} : reflection_of(v);
    out.beside.push_back(of.value);
    if (of.tau == 0.0) continue;
    const std::int64_t first = k + 1, size = a.rows - first;
    w.assign(v.size(), 0.0);
    for_ranges(workers, size, size, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = 0; i < size; ++i) {
        const double by = v[static_cast<std::size_t>(i)];
        const double* const row = &a(first + i, first);
        for (std::int64_t j = begin; j < end; ++j) w[static_cast<std::size_t>(j)] += by * row[j];
      }
    });
    double sum = 0.0;
    for (std::size_t i = 0; i < v.size(); ++i) sum += w[i] * v[i];
    const double half = of.tau * (of.tau * sum / 2.0);
    for (std::size_t i = 0; i < v.size(); ++i) w[i] = of.tau * w[i] - half * v[i];
    for_ranges(workers, size, size, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i);
        double* const row = &a(first + i, first);
        for (std::int64_t j = 0; j < size; ++j) {
          const auto other = static_cast<std::size_t>(j);
          row[j] -= v[at] * w[other] + w[at] * v[other];
        }
      }
    });
    taken.add(first, of.tau, std::move(v));
  }
  return out;
}

/// One implicit step on the rows l to m, with the shift of Wilkinson.
void symmetric_step(two_diagonals& t, std::size_t l, std::size_t m, turned& vectors) {
  std::vector<double>&d = t.diagonal, &e = t.beside;
  const double slope = (d[m - 1] - d[m]) / (2.0 * e[m - 1]);
  const double root = std::copysign(std::sqrt(slope * slope + 1.0), slope);
  double g = d[l] - d[m] + e[m - 1] / (slope + root);
  rotation now{1.0, 1.0, 0.0};
  double moved = 0.0;
  for (std::size_t i = l; i < m; ++i) {
    const double f = now.s * e[i], b = now.c * e[i];
    now = rotation_of(g, f);
    if (i > l) e[i - 1] = now.length;
    g = d[i] - moved;
    const double r = (d[i + 1] - g) * now.s + 2.0 * now.c * b;
    moved = now.s * r;
    d[i] = g + moved;
    g = now.c * r - b;
    vectors.turn(static_cast<std::int64_t>(i), now.c, now.s);
  }
  d[m] -= moved;
  e[m - 1] = g;
}

}  // namespace

spectrum eigenvalues(const double_matrix& a, std::span<double> values, const double_matrix& vectors,
                     const executor& workers) {
  const std::optional<int> exponent = scaled(a);
  if (!exponent) return spectrum::not_finite;
  reflections taken;
  two_diagonals t = tridiagonal_of(a, taken, workers);
  turned by(vectors.rows, workers);
  const auto step = [&](std::size_t l, std::size_t m) { symmetric_step(t, l, m, by); };
  if (!diagonalized(t, step)) return spectrum::not_converged;
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](std::int64_t i) { return t.diagonal[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t i, std::int64_t j) { return value(i) < value(j); });
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(value(order[i]), *exponent);
  }
  by.place(order, vectors);
  taken.apply(vectors, workers);
  multiply_columns(vectors, signs_of(vectors));
  return spectrum::found;
}

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/spectrum.hpp>

#include <algorithm>
#include <array>
#include <numeric>

#include "numeric/ranges.hpp"
#include "numeric/reflections.hpp"
#include "numeric/spectrum/vectors.hpp"

namespace potl::numeric {
namespace {

using namespace spectrum_detail;

/// The sum of products of two runs of numbers: eight lanes, then their sum in pairs.
double dot(const double* x, const double* y, std::int64_t count) {
  std::array<double, 8> lane{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t l = 0; l < 8; ++l)
      lane[l] += x[i + static_cast<std::int64_t>(l)] * y[i + static_cast<std::int64_t>(l)];
  }
  for (std::size_t l = 0; i < count; ++i, ++l) lane[l] += x[i] * y[i];
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/// Of a matrix with as many rows as columns, or more: reflections from the left and the right in
/// turn.
two_diagonals bidiagonal_of(const double_matrix& a, reflections& left, reflections& right,
                            const executor& workers) {
  two_diagonals out;
  std::vector<double> sums;
  for (std::int64_t k = 0; k < a.columns; ++k) {
    std::vector<double> v;
    for (std::int64_t i = k; i < a.rows; ++i) v.push_back(a(i, k));
    const reflection of = reflection_of(v);
    out.diagonal.push_back(of.value);
    const std::int64_t first = k + 1, width = a.columns - first;
    if (of.tau != 0.0) {
      for_ranges(workers, width, 2 * (a.rows - k), [&](std::int64_t begin, std::int64_t end) {
        std::vector<double> own;
        reflect(a, v, of.tau, k, first + begin, first + end, own);
      });
    }
    left.add(k, of.tau, std::move(v));
    std::vector<double> w(&a(k, k) + 1, &a(k, k) + 1 + width);
    const reflection beside = w.empty() ? reflection{0.0, 0.0} : reflection_of(w);
    out.beside.push_back(beside.value);
    if (beside.tau != 0.0) {
      for_ranges(workers, a.rows - first, 2 * width, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          double* const row = &a(first + i, first);
          const double by = beside.tau * dot(row, w.data(), width);
          for (std::int64_t j = 0; j < width; ++j) row[j] -= by * w[static_cast<std::size_t>(j)];
        }
      });
    }
    right.add(first, beside.tau, std::move(w));
  }
  return out;
}

/// The smaller singular value of ((f, g), (0, h)).
double smaller_of(double f, double g, double h) {
  f = std::fabs(f), h = std::fabs(h);
  const double sum = std::sqrt((f + h) * (f + h) + g * g);
  return 2.0 * f * h / (sum + std::sqrt((f - h) * (f - h) + g * g));
}

/// One step on the rows l to m, none of which is negligible, with a shift.
void shifted_step(two_diagonals& b, std::size_t l, std::size_t m, turned& u, turned& v) {
  std::vector<double>&d = b.diagonal, &e = b.beside;
  const double shift = smaller_of(d[m - 1], e[m - 1], d[m]);
  double f = (std::fabs(d[l]) - shift) * (std::copysign(1.0, d[l]) + shift / d[l]), g = e[l];
  for (std::size_t i = l; i < m; ++i) {
    const rotation of_v = rotation_of(f, g);
    if (i > l) e[i - 1] = of_v.length;
    f = of_v.c * d[i] + of_v.s * e[i];
    e[i] = of_v.c * e[i] - of_v.s * d[i];
    g = of_v.s * d[i + 1];
    d[i + 1] *= of_v.c;
    const rotation of_u = rotation_of(f, g);
    d[i] = of_u.length;
    f = of_u.c * e[i] + of_u.s * d[i + 1];
    d[i + 1] = of_u.c * d[i + 1] - of_u.s * e[i];
    g = of_u.s * e[i + 1];
    e[i + 1] *= i + 1 < m ? of_u.c : 1.0;
    v.turn(static_cast<std::int64_t>(i), of_v.c, of_v.s);
    u.turn(static_cast<std::int64_t>(i), of_u.c, of_u.s);
  }
  e[m - 1] = f;
}

/// The same where a number of the diagonal is 0, without a shift: the last one becomes 0, and what
/// is beside it.
void plain_step(two_diagonals& b, std::size_t l, std::size_t m, turned& u, turned& v) {
  std::vector<double>&d = b.diagonal, &e = b.beside;
  rotation of_v{1.0, 0.0, 0.0}, of_u{1.0, 0.0, 0.0};
  for (std::size_t i = l; i < m; ++i) {
    of_v = rotation_of(d[i] * of_v.c, e[i]);
    if (i > l) e[i - 1] = of_u.s * of_v.length;
    of_u = rotation_of(of_u.c * of_v.length, d[i + 1] * of_v.s);
    d[i] = of_u.length;
    v.turn(static_cast<std::int64_t>(i), of_v.c, of_v.s);
    u.turn(static_cast<std::int64_t>(i), of_u.c, of_u.s);
  }
  const double rest = d[m] * of_v.c;
  d[m] = rest * of_u.c;
  e[m - 1] = rest * of_u.s;
}

/// Of a matrix with as many rows as columns, or more; signs are as they come.
spectrum of_tall(const double_matrix& a, std::span<double> values, const double_matrix& u,
                 const double_matrix& v, const executor& workers) {
  const std::optional<int> exponent = scaled(a);
  if (!exponent) return spectrum::not_finite;
  reflections left, right;
  two_diagonals b = bidiagonal_of(a, left, right, workers);
  const std::int64_t wanted = u.rows == 0 ? 0 : a.columns;
  turned of_u(wanted, workers), of_v(wanted, workers);
  const auto step = [&](std::size_t l, std::size_t m) {
    const auto first = b.diagonal.begin() + static_cast<std::ptrdiff_t>(l);
    const auto end = b.diagonal.begin() + static_cast<std::ptrdiff_t>(m + 1);
    const auto is_nothing = [](double x) { return std::fabs(x) <= smallest; };
    const bool is_singular = std::any_of(first, end, is_nothing);
    std::replace_if(first, end, is_nothing, 0.0);
    (is_singular ? plain_step : shifted_step)(b, l, m, of_u, of_v);
  };
  if (!diagonalized(b, step)) return spectrum::not_converged;
  std::vector<std::int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](std::int64_t i) { return b.diagonal[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    return std::fabs(value(i)) > std::fabs(value(j));
  });
  std::vector<double> signs(static_cast<std::size_t>(v.columns), 1.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(std::fabs(value(order[i])), *exponent);
    if (wanted > 0 && value(order[i]) < 0.0) signs[i] = -1.0;
  }
  of_u.place(order, u);
  left.apply(u, workers);
  of_v.place(order, v);
  multiply_columns(v, signs);
  right.apply(v, workers);
  return spectrum::found;
}

}  // namespace

spectrum singular_values(const double_matrix& a, std::span<double> values, const double_matrix& u,
                         const double_matrix& v, const executor& workers) {
  spectrum out = spectrum::found;
  if (a.rows < a.columns) {
    std::vector<double> memory(static_cast<std::size_t>(a.rows * a.columns));
    const double_matrix turned_over{memory.data(), a.columns, a.rows};
    for (std::int64_t i = 0; i < a.rows; ++i) {
      for (std::int64_t j = 0; j < a.columns; ++j) turned_over(j, i) = a(i, j);
    }
    out = of_tall(turned_over, values, v, u, workers);
  } else {
    out = of_tall(a, values, u, v, workers);
  }
  if (out != spectrum::found) return out;
  const std::vector<double> signs = signs_of(u);
  std::vector<double> of_v = signs_of(v);
  const std::size_t common = std::min({signs.size(), of_v.size(), values.size()});
  std::copy_n(signs.begin(), common, of_v.begin());
  multiply_columns(u, signs);
  multiply_columns(v, of_v);
  return out;
}

}  // namespace potl::numeric

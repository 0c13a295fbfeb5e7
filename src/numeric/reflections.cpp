// SPDX-License-Identifier: Apache-2.0
#include "reflections.hpp"

#include <algorithm>
#include <cmath>

namespace potl::numeric {

reflection reflection_of(std::span<double> v) {
  double largest = 0.0;
  for (const double element : v) {
    if (!std::isfinite(element)) {
      largest = 0.0;
      break;
    }
    largest = std::max(largest, std::fabs(element));
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  double below = 0.0;
  bool is_triangular = true;  // squares may vanish beside the first one's
  for (std::size_t i = 1; i < v.size(); ++i) {
    v[i] = std::ldexp(v[i], -exponent);
    below += v[i] * v[i];
    is_triangular = is_triangular && v[i] == 0.0;
  }
  if (is_triangular) return {0.0, v[0]};
  const double alpha = std::ldexp(v[0], -exponent);
  const double beta = -std::copysign(std::sqrt(alpha * alpha + below), alpha);
  for (double& element : v) element /= alpha - beta;
  v[0] = 1.0;
  return {(beta - alpha) / beta, std::ldexp(beta, exponent)};
}

void reflect(const double_matrix& a, std::span<const double> v, double tau, std::int64_t row,
             std::int64_t first, std::int64_t last, std::vector<double>& sums) {
  const std::int64_t width = last - first;
  if (width <= 0) return;
  sums.assign(static_cast<std::size_t>(width), 0.0);
  double* const sum = sums.data();
  double* to = &a(row, first);
  for (const double by : v) {
    for (std::int64_t j = 0; j < width; ++j) sum[j] += by * to[j];
    to += a.columns;
  }
  for (double& one : sums) one *= tau;
  to = &a(row, first);
  for (const double by : v) {
    for (std::int64_t j = 0; j < width; ++j) to[j] -= by * sum[j];
    to += a.columns;
  }
}

}  // namespace potl::numeric

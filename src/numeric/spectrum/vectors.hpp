// SPDX-License-Identifier: Apache-2.0
// What eigenvalues and singular values have in common: the vectors, and when a number is nothing.
#pragma once

#include <potl/numeric/detail/decomposition.hpp>
#include <potl/numeric/detail/executor.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace potl::numeric::spectrum_detail {

/// Below this, beside a largest element of 1/2 or more, a number is taken for 0: its square and
/// quotients by it stay normal numbers.
constexpr double smallest = 0x1p-400;

/// A matrix that has nothing else: all of it on and above the diagonal, and below where it is
/// symmetric.
struct two_diagonals {
  std::vector<double> diagonal, beside;  ///< of one length; the last one beside is 0
};

/// Takes step(l, m) on rows l to m that nothing separates, from the last row up, until nothing is
/// left beside the diagonal. False if that takes more than 30 steps for each row.
bool diagonalized(two_diagonals& b, const std::function<void(std::size_t, std::size_t)>& step);

/// c f + s g = length, c g - s f = 0. Numbers far below the smallest stay as they are.
struct rotation {
  double c, s, length;
};
inline rotation rotation_of(double f, double g) {
  if (std::fabs(f) < 0x1p-500 && std::fabs(g) < 0x1p-500) return {1.0, 0.0, f};
  const double length = std::sqrt(f * f + g * g);
  return {f / length, g / length, length};
}

/// The exponent of the largest element, which the matrix is divided by 2 to the power of; none
/// where an element is not finite.
std::optional<int> scaled(const double_matrix& a);

/// A square matrix, at first the identity, whose columns are turned in pairs.
class turned {
 public:
  /// Of no size where nobody asks for vectors.
  turned(std::int64_t size, const executor& workers);
  /// Columns x, y = `first`, `first` + 1 become c x + s y and c y - s x.
  void turn(std::int64_t first, double c, double s);
  /// column `order[j]` becomes column j of `to`, whose other elements are those of the identity.
  void place(std::span<const std::int64_t> order, const double_matrix& to);

 private:
  struct step {
    std::int64_t first;
    double c, s;
  };
  static constexpr std::int64_t lanes = 8;
  static void turn_lanes(std::span<const step> steps, double* columns);
  void flush();

  std::int64_t size_;
  const executor& workers_;
  std::vector<double> values_;
  std::vector<step> steps_;  ///< not done yet
};

/// Reflections that were taken one after the other, each of the rows from its own on.
class reflections {
 public:
  void add(std::int64_t row, double tau, std::vector<double> v);
  /// The product of all of them, times x.
  void apply(const double_matrix& x, const executor& workers) const;

 private:
  struct one {
    std::int64_t row;
    double tau;
    std::vector<double> v;
  };
  std::vector<one> all_;
};

/// The sign of each column's element of the largest size, the first of equal ones: 1 or -1.
std::vector<double> signs_of(const double_matrix& x);
void multiply_columns(const double_matrix& x, std::span<const double> by);

}  // namespace potl::numeric::spectrum_detail

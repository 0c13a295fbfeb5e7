// SPDX-License-Identifier: Apache-2.0
// Small dense matrices of the tests of decompositions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <potl/numeric/detail/decomposition.hpp>

namespace potl::test::dense {

struct matrix {
  std::int64_t rows, columns;
  std::vector<double> values;
  matrix(std::int64_t m, std::int64_t n) : rows(m), columns(n), values(to_size(m * n)) {}
  matrix(std::int64_t m, std::int64_t n, std::vector<double> of)
      : rows(m), columns(n), values(std::move(of)) {}
  static std::size_t to_size(std::int64_t x) { return static_cast<std::size_t>(x); }
  numeric::double_matrix view() { return {values.data(), rows, columns}; }
  double& operator()(std::int64_t i, std::int64_t j) { return values[to_size(i * columns + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const {
    return values[to_size(i * columns + j)];
  }
};

inline matrix drawn(std::int64_t rows, std::int64_t columns) {
  std::mt19937_64 random(static_cast<std::uint64_t>(100 * rows + columns));
  std::normal_distribution<double> normal;
  matrix out(rows, columns);
  for (double& value : out.values) value = normal(random);
  return out;
}

inline matrix product(const matrix& a, const matrix& b) {
  matrix out(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < b.columns; ++j) {
      long double sum = 0;
      for (std::int64_t k = 0; k < a.columns; ++k)
        sum += static_cast<long double>(a(i, k)) * b(k, j);
      out(i, j) = static_cast<double>(sum);
    }
  }
  return out;
}
inline matrix transposed(const matrix& a) {
  matrix out(a.columns, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.columns; ++j) out(j, i) = a(i, j);
  }
  return out;
}
inline matrix identity(std::int64_t n) {
  matrix out(n, n);
  for (std::int64_t i = 0; i < n; ++i) out(i, i) = 1;
  return out;
}

}  // namespace potl::test::dense

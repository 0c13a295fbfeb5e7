// SPDX-License-Identifier: Apache-2.0
// Products of the factors are near the matrix, in units of 2^-53 of its largest element.
#include "catch.hpp"
#include "matrices.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <potl/numeric/detail/spectrum.hpp>

using namespace potl::numeric;
using namespace potl::test::dense;

namespace {

double largest(const matrix& a) {
  double out = 0;
  for (const double value : a.values) out = std::max(out, std::abs(value));
  return out;
}
double distance(const matrix& a, const matrix& wanted) {
  double off = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    off = std::max(off, std::abs(a.values[i] - wanted.values[i]));
  }
  return off == 0 ? 0 : off / largest(wanted) * 0x1p53;
}
bool is_orthogonal(const matrix& v) {
  return distance(product(transposed(v), v), identity(v.columns)) < 20.0 * double(v.rows + 1);
}
/// The first of the largest elements of column j is positive.
bool is_positive(const matrix& v, std::int64_t j) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < v.rows; ++i) {
    if (std::abs(v(i, j)) > std::abs(v(best, j))) best = i;
  }
  return v(best, j) > 0;
}
matrix scaled_by(const matrix& a, int exponent) {
  matrix out = a;
  for (double& value : out.values) value = std::ldexp(value, exponent);
  return out;
}
matrix symmetric(const matrix& a) {
  matrix out = a;
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.rows; ++j) out(i, j) = a(i, j) + a(j, i);
  }
  return out;
}
/// Any elements, without the library's random numbers: -31 to 32.
matrix of_integers(std::int64_t rows, std::int64_t columns, std::uint32_t state = 1) {
  matrix out(rows, columns);
  for (double& value : out.values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<double>(state >> 26) - 31;
  }
  return out;
}
std::uint64_t digest(const std::vector<double>& values, std::uint64_t from = 1469598103934665603U) {
  for (const double value : values) {
    from = (from ^ std::bit_cast<std::uint64_t>(value)) * 1099511628211U;
  }
  return from;
}

struct eigen {
  spectrum outcome;
  std::vector<double> values;
  matrix v;
};
eigen eigen_of(matrix a, bool with_vectors = true, const executor& workers = inline_executor()) {
  const std::int64_t wanted = with_vectors ? a.rows : 0;
  eigen out{spectrum::found, std::vector<double>(matrix::to_size(a.rows)), matrix(wanted, wanted)};
  out.outcome = eigenvalues(a.view(), out.values, out.v.view(), workers);
  return out;
}
void check_eigen(const matrix& a) {
  const eigen of = eigen_of(a);
  REQUIRE(of.outcome == spectrum::found);
  CHECK(std::is_sorted(of.values.begin(), of.values.end()));
  CHECK(is_orthogonal(of.v));
  matrix scaled = of.v;
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.rows; ++j) scaled(i, j) *= of.values[matrix::to_size(j)];
  }
  const double many = 20.0 * double(a.rows + 1);
  CHECK(distance(product(scaled, transposed(of.v)), a) < many);
  for (std::int64_t j = 0; j < a.rows; ++j) CHECK(is_positive(of.v, j));
  CHECK(eigen_of(a, false).values == of.values);
}

struct singular {
  spectrum outcome;
  matrix u;
  std::vector<double> values;
  matrix v;
};
singular singular_of(matrix a, bool full = false, bool with_vectors = true,
                     const executor& workers = inline_executor()) {
  const std::int64_t least = std::min(a.rows, a.columns);
  const auto side = [&](std::int64_t size) {
    return with_vectors ? matrix(size, full ? size : least) : matrix(0, 0);
  };
  singular out{spectrum::found, side(a.rows), std::vector<double>(matrix::to_size(least)),
               side(a.columns)};
  out.outcome = singular_values(a.view(), out.values, out.u.view(), out.v.view(), workers);
  return out;
}
void check_singular(const matrix& a) {
  const singular of = singular_of(a);
  REQUIRE(of.outcome == spectrum::found);
  CHECK(std::is_sorted(of.values.rbegin(), of.values.rend()));
  const std::int64_t least = std::min(a.rows, a.columns);
  if (least > 0) CHECK(of.values.back() >= 0);
  CHECK(is_orthogonal(of.u));
  CHECK(is_orthogonal(of.v));
  matrix scaled = of.u;
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < least; ++j) scaled(i, j) *= of.values[matrix::to_size(j)];
  }
  CHECK(distance(product(scaled, transposed(of.v)), a) < 20.0 * double(a.rows + a.columns + 1));
  for (std::int64_t j = 0; j < least; ++j) CHECK(is_positive(of.u, j));
  CHECK(singular_of(a, false, false).values == of.values);

  const singular whole = singular_of(a, true);
  CHECK(whole.values == of.values);
  CHECK(is_orthogonal(whole.u));
  CHECK(is_orthogonal(whole.v));
  for (std::int64_t j = 0; j < a.rows; ++j) CHECK(is_positive(whole.u, j));
  for (std::int64_t j = least; j < a.columns; ++j) CHECK(is_positive(whole.v, j));
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < least; ++j) REQUIRE(whole.u(i, j) == of.u(i, j));
  }
}

/// Symmetric, and hard on those who compare with what is beside.
std::vector<matrix> hostile_matrices() {
  std::vector<matrix> out;
  for (const std::int64_t n : {2, 5, 21}) {
    out.push_back(matrix(n, n));
    out.push_back(identity(n));
    matrix ones(n, n), hilbert(n, n), graded(n, n), exchange(n, n), arrow = identity(n);
    matrix near = identity(n), wilkinson(n, n), one_beside(n, n);
    for (std::int64_t i = 0; i < n; ++i) {
      exchange(i, n - 1 - i) = 1;
      arrow(i, 0) = arrow(0, i) = 1e-170;
      wilkinson(i, i) = std::abs(double(i) - std::floor(double(n) / 2));
      if (i + 1 < n) wilkinson(i, i + 1) = wilkinson(i + 1, i) = 1;
      if (i % 3 == 0 && i + 1 < n) one_beside(i, i + 1) = one_beside(i + 1, i) = 1;
      for (std::int64_t j = 0; j < n; ++j) {
        ones(i, j) = 1;
        hilbert(i, j) = 1 / double(i + j + 1);
        graded(i, j) = std::pow(10.0, double(-12 * (i + j)));
        near(i, j) += 1e-15 * double((i * j) % 7);
      }
    }
    for (const matrix& one :
         {ones, hilbert, graded, exchange, arrow, near, wilkinson, one_beside}) {
      out.push_back(one);
    }
    matrix backwards = graded;
    std::reverse(backwards.values.begin(), backwards.values.end());
    out.push_back(backwards);
    for (const int exponent : {-1073, -1022, -540, 540, 1015}) {
      out.push_back(scaled_by(symmetric(of_integers(n, n)), exponent));
      out.push_back(scaled_by(ones, exponent));
    }
  }
  return out;
}

constexpr std::int64_t sizes[] = {0, 1, 2, 3, 7, 20, 33};

}  // namespace

TEST_CASE("eigenvectors are orthogonal, and give the matrix back", "[spectrum]") {
  for (const std::int64_t n : sizes) {
    CAPTURE(n);
    check_eigen(symmetric(drawn(n, n)));
  }
  const eigen of = eigen_of(matrix(2, 2, {3, -4, -4, 3}));
  CHECK(of.values[0] == Approx(-1));
  CHECK(of.values[1] == Approx(7));
  CHECK(of.v(0, 0) > 0);
  CHECK(eigen_of(matrix(1, 1, {-3})).values == std::vector<double>{-3});
}

TEST_CASE("singular vectors are orthogonal, and give the matrix back", "[spectrum]") {
  for (const std::int64_t rows : sizes) {
    for (const std::int64_t columns : sizes) {
      CAPTURE(rows, columns);
      check_singular(drawn(rows, columns));
    }
  }
  const singular of = singular_of(matrix(1, 1, {-3}));
  CHECK(of.values == std::vector<double>{3});
  CHECK(of.u(0, 0) == 1);
  CHECK(of.v(0, 0) == -1);
}

TEST_CASE("equal, clustered, vanishing and far values end", "[spectrum]") {
  std::size_t number = 0;
  for (const matrix& a : hostile_matrices()) {
    CAPTURE(number++, a.rows);
    // What is below 2^-1022 has fewer bits.
    if (largest(a) < 0x1p-1000) {
      CHECK(eigen_of(a).outcome == spectrum::found);
      CHECK(singular_of(a).outcome == spectrum::found);
      CHECK(is_orthogonal(eigen_of(a).v));
      CHECK(is_orthogonal(singular_of(a).u));
      continue;
    }
    check_eigen(a);
    check_singular(a);
  }
}

TEST_CASE("clusters that differ by rounding errors end", "[spectrum]") {
  constexpr std::int64_t n = 32;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    matrix a = scaled_by(of_integers(n, n, seed), -52 + static_cast<int>(seed % 4));
    for (std::int64_t i = 0; i < n; ++i) a(i, i) += 1 + std::floor(double(i) / 8);
    CHECK(singular_of(a, false, false).outcome == spectrum::found);
    CHECK(eigen_of(symmetric(a), false).outcome == spectrum::found);
  }
}

TEST_CASE("zeros on the diagonal of two diagonals end", "[spectrum]") {
  constexpr std::int64_t n = 6;
  for (unsigned zeros = 0; zeros < 1U << n; ++zeros) {
    CAPTURE(zeros);
    matrix a(n, n);
    for (std::int64_t i = 0; i < n; ++i) {
      a(i, i) = (zeros >> i & 1U) != 0 ? 0 : double(i + 1);
      if (i + 1 < n) a(i, i + 1) = 1.5;
    }
    check_singular(a);
  }
}

TEST_CASE("a matrix of any size has the vectors of the same at another power of two",
          "[spectrum]") {
  const matrix a = symmetric(of_integers(9, 9));
  const eigen wanted = eigen_of(a);
  const singular both = singular_of(a);
  for (const int exponent : {-900, 900}) {
    const eigen found = eigen_of(scaled_by(a, exponent));
    CHECK(found.v.values == wanted.v.values);
    const singular pair = singular_of(scaled_by(a, exponent));
    CHECK(pair.u.values == both.u.values);
    CHECK(pair.v.values == both.v.values);
    for (std::size_t i = 0; i < 9; ++i) {
      CHECK(found.values[i] == std::ldexp(wanted.values[i], exponent));
      CHECK(pair.values[i] == std::ldexp(both.values[i], exponent));
    }
  }
}

TEST_CASE("threads do not change a bit of vectors", "[spectrum]") {
  const auto pool = make_thread_pool(3);
  const matrix a = of_integers(280, 270), s = symmetric(of_integers(270, 270));
  const eigen one = eigen_of(s), other = eigen_of(s, true, *pool);
  CHECK(one.values == other.values);
  CHECK(one.v.values == other.v.values);
  const singular first = singular_of(a), second = singular_of(a, false, true, *pool);
  CHECK(first.u.values == second.u.values);
  CHECK(first.values == second.values);
  CHECK(first.v.values == second.v.values);
}

TEST_CASE("eigenvalues and singular values have these bits", "[spectrum]") {
  const eigen of = eigen_of(symmetric(of_integers(40, 40)));
  CHECK(digest(of.v.values, digest(of.values)) == 0x6e7c4b32848cf39fU);
  const singular both = singular_of(of_integers(40, 30));
  CHECK(digest(both.v.values, digest(both.u.values, digest(both.values))) == 0x4e51e9c71be77458U);
}

TEST_CASE("what is not finite has no spectrum", "[spectrum]") {
  for (const double wrong : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    matrix a = symmetric(drawn(4, 4));
    a(3, 1) = wrong;
    CHECK(eigen_of(a).outcome == spectrum::not_finite);
    CHECK(singular_of(a).outcome == spectrum::not_finite);
  }
}

// SPDX-License-Identifier: Apache-2.0
// Products of the factors are near the matrix, in units of 2^-53 of its largest element.
#include "catch.hpp"
#include "matrices.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace potl::numeric;
using namespace potl::test::dense;

namespace {

/// Of each column in units of 2^-53 of its largest element.
double distance(const matrix& a, const matrix& wanted) {
  double worst = 0;
  for (std::int64_t j = 0; j < wanted.columns; ++j) {
    double largest = 0, off = 0;
    for (std::int64_t i = 0; i < wanted.rows; ++i) {
      largest = std::max(largest, std::abs(wanted(i, j)));
      off = std::max(off, std::abs(a(i, j) - wanted(i, j)));
    }
    if (off != 0) worst = std::max(worst, off / largest * 0x1p53);
  }
  return worst;
}

struct triangles {
  matrix q, r;
};
triangles qr_of(const matrix& a, std::int64_t kept) {
  triangles out{matrix(a.rows, kept), a};
  qr(out.r.view(), out.q.view());
  return out;
}
void check_qr(const matrix& a) {
  const triangles all = qr_of(a, a.rows);
  CHECK(distance(product(all.q, all.r), a) < 200);
  CHECK(distance(product(transposed(all.q), all.q), identity(a.rows)) < 50);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < std::min(i, a.columns); ++j) REQUIRE(all.r(i, j) == 0);
  }
}

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr std::int64_t sizes[] = {0, 1, 2, 3, 7, 20};

}  // namespace

TEST_CASE("L U is the matrix with its rows exchanged, and solves both ways", "[decomposition]") {
  for (const std::int64_t n : sizes) {
    CAPTURE(n);
    const matrix a = drawn(n, n), b = drawn(n, 3);
    matrix lu = a;
    std::vector<std::int32_t> pivots(matrix::to_size(n));
    CHECK(lu_factor(lu.view(), pivots) == 0);
    matrix lower = identity(n), upper(n, n), moved = a;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < n; ++j) (j < i ? lower : upper)(i, j) = lu(i, j);
      for (std::int64_t j = 0; j < i; ++j) REQUIRE(std::abs(lower(i, j)) <= 1);
      const std::int64_t other = pivots[matrix::to_size(i)] - 1;
      REQUIRE(other >= i);
      for (std::int64_t j = 0; j < n; ++j) std::swap(moved(i, j), moved(other, j));
    }
    CHECK(distance(product(lower, upper), moved) < 30);
    for (const bool is_transposed : {false, true}) {
      matrix x = b;
      lu_solve(lu.view(), pivots, is_transposed, x.view());
      CHECK(distance(product(is_transposed ? transposed(a) : a, x), b) < 3000);
    }
  }
}

TEST_CASE("the first of equal pivots is taken, and the first that is 0 is named",
          "[decomposition]") {
  matrix equal(3, 3, {1, 2, 3, -1, 5, 6, 1, 8, 1});
  std::vector<std::int32_t> pivots(3);
  CHECK(lu_factor(equal.view(), pivots) == 0);
  CHECK(pivots == std::vector<std::int32_t>{1, 2, 3});
  matrix singular(3, 3, {1, 2, 3, 2, 4, 6, 1, 0, 1});
  CHECK(lu_factor(singular.view(), pivots) == 3);
  matrix nothing(2, 3);
  pivots.resize(2);
  CHECK(lu_factor(nothing.view(), pivots) == 1);
  CHECK(nothing.values == std::vector<double>(6));
}

TEST_CASE("L times its transpose is the matrix; its first minor that is not positive is named",
          "[decomposition]") {
  for (const std::int64_t n : sizes) {
    const matrix of = drawn(n, n + 2);
    const matrix a = product(of, transposed(of));
    matrix lower = a;
    CHECK(cholesky(lower.view()) == 0);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = i + 1; j < n; ++j) REQUIRE(lower(i, j) == 0);
    }
    CHECK(distance(product(lower, transposed(lower)), a) < 60);
  }
  matrix wrong(3, 3, {4, 0, 0, 2, 1, 0, 1, 1, 9});
  CHECK(cholesky(wrong.view()) == 2);
  matrix none(1, 1, {0});
  CHECK(cholesky(none.view()) == 1);
  matrix no_number(1, 1, {std::nan("")});
  CHECK(cholesky(no_number.view()) == 1);
}

TEST_CASE("Q has orthogonal columns, and R is triangular", "[decomposition]") {
  for (const std::int64_t rows : sizes) {
    for (const std::int64_t columns : sizes) {
      CAPTURE(rows, columns);
      check_qr(drawn(rows, columns));
    }
  }
  // What is triangular stays; others get the sign against the diagonal's.
  const matrix upper(2, 2, {-3, 1, 0, 2});
  CHECK(qr_of(upper, 2).r.values == upper.values);
  CHECK(qr_of(upper, 2).q.values == identity(2).values);
  CHECK(qr_of(matrix(2, 1, {3, 4}), 1).r(0, 0) == Approx(-5));
  CHECK(qr_of(matrix(2, 1, {-3, 4}), 1).r(0, 0) == Approx(5));
}

TEST_CASE("columns of any size have the factors of the same at another power of two",
          "[decomposition]") {
  const matrix a = drawn(7, 5);
  const triangles wanted = qr_of(a, 5);
  for (const int exponent : {-900, -600, 500, 1000}) {
    matrix scaled = a;
    for (std::int64_t i = 0; i < 7; ++i) scaled(i, 2) = std::ldexp(a(i, 2), exponent);
    const triangles found = qr_of(scaled, 5);
    CHECK(found.q.values == wanted.q.values);
    matrix back = found.r;
    for (std::int64_t i = 0; i < 7; ++i) back(i, 2) = std::ldexp(back(i, 2), -exponent);
    CHECK(back.values == wanted.r.values);
  }
}

TEST_CASE("nothing is lost of a column that is small beside its diagonal or the columns before",
          "[decomposition]") {
  constexpr double tiny = 1e-200;
  check_qr(matrix(3, 1, {1, tiny, 0}));
  check_qr(matrix(3, 2, {1, 1, 0, tiny, 0, -tiny}));
  check_qr(matrix(3, 3, {1e300, 1e300, -1e300, 1e300, -1e300, 1e300, 1e300, 1e300, 1e300}));
  check_qr(matrix(2, 2, {5e-324, 0, 5e-324, 5e-324}));
  const triangles found = qr_of(matrix(3, 2, {1, 1, 0, tiny, 0, -tiny}), 3);
  CHECK(std::abs(found.r(1, 1)) == Approx(std::sqrt(2) * tiny).epsilon(1e-14));
}

TEST_CASE("what is not finite leaves other columns' factors, and ends", "[decomposition]") {
  for (const double wrong : {inf, std::nan("")}) {
    matrix a = drawn(4, 4);
    const matrix before = qr_of(a, 4).r;
    a(2, 3) = wrong;
    const matrix after = qr_of(a, 4).r;
    for (std::int64_t j = 0; j < 3; ++j) CHECK(after(0, j) == before(0, j));
    CHECK_FALSE(std::isfinite(after(0, 3)));
  }
}

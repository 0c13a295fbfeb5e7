// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/complex.hpp>

#include "catch.hpp"

using namespace potl::numeric;

namespace {

template <class Real>
std::vector<Real> of_two(complex_binary function, const std::vector<Real>& z,
                         const std::vector<Real>& w) {
  std::vector<Real> out(z.size());
  apply(function, z, w, out, inline_executor());
  return out;
}

template <class Real>
Real magnitude(Real re, Real im) {
  const Real z[] = {re, im};
  Real out = 0;
  magnitudes(z, {&out, 1}, inline_executor());
  return out;
}

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("products and quotients of single numbers are rounded once", "[complex]") {
  // In single precision the products 1 + 2^-12 + 2^-24 would lose their last bit.
  const float near = 1 + 0x1p-12F;
  const auto product = of_two<float>(complex_binary::product, {near, 1}, {near, 1});
  CHECK(product == std::vector<float>{0x1p-11F + 0x1p-24F, 2 * near});
  const auto quotient = of_two<float>(complex_binary::quotient, {1e30F, 1e30F}, {1e30F, 0});
  CHECK(quotient == std::vector<float>{1, 1});
}

TEST_CASE("quotients and magnitudes have no overflow on the way", "[complex]") {
  CHECK(of_two<double>(complex_binary::quotient, {1e300, 1e300}, {1e300, 1e300}) ==
        std::vector<double>{1, 0});
  CHECK(of_two<double>(complex_binary::quotient, {1e-300, 0}, {0, 1e-300}) ==
        std::vector<double>{0, -1});
  CHECK(magnitude(3e300, 4e300) == 5e300);
  CHECK(magnitude(0.0, 5e-324) == 5e-324);
  CHECK(magnitude(3e30F, -4e30F) == 5e30F);
  CHECK(magnitude(0.0, -0.0) == 0);
}

TEST_CASE("a magnitude is infinite if a part is, and canonical if it is no number", "[complex]") {
  const double none = -std::numeric_limits<double>::quiet_NaN();
  CHECK(magnitude(none, -infinity) == infinity);
  CHECK(magnitude(infinity, infinity) == infinity);
  CHECK(std::isnan(magnitude(none, 1.0)));
  CHECK(!std::signbit(magnitude(none, 1.0)));
}

TEST_CASE("a direction has magnitude 1, and none at 0", "[complex]") {
  const std::vector<double> z = {3, -4, 0, -0.0, -1e-300, 0};
  std::vector<double> out(z.size());
  directions(z, out, inline_executor());
  CHECK(out == std::vector<double>{0.6, -0.8, 0, 0, -1, 0});
}

TEST_CASE("operands of other lengths are refused", "[complex]") {
  std::vector<float> four(4), two(2);
  CHECK_THROWS_AS(apply(complex_binary::product, four, two, four, inline_executor()),
                  potl::exception);
  CHECK_THROWS_AS(magnitudes(four, four, inline_executor()), potl::exception);
}

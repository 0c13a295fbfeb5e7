// SPDX-License-Identifier: Apache-2.0
// Expected values: 40-digit arithmetic, rounded to 20 digits.
#include "catch.hpp"

#include <cmath>
#include <limits>

#include <potl/statistics/detail/quantile.hpp>

namespace {

struct known {
  double x;
  double value;
};

double relative_error(double computed, double expected) {
  return std::abs(computed - expected) / std::abs(expected);
}

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("the normal quantile is within 1e-15 of the exact value") {
  // clang-format off
  constexpr known table[] = {
      {0.500001, 2.5066282747057051991e-6}, {0.6, 0.25334710313579974132},
      {0.925, 1.4395314709384562291}, {0.9250001, 1.4395321773759004884},
      {0.1, -1.2815515655446004353}, {0.075, -1.4395314709384559349},
      {0.01, -2.3263478740408410931}, {0.001, -3.0902323061678135354},
      {1e-6, -4.7534243088228989573}, {1e-9, -5.9978070150076868614},
      {0x1p-53, -8.2095361516013868556}, {1e-17, -8.4937932241095980661},
      {1e-100, -21.273453560965324294}, {1e-300, -37.047096299361199237},
      {0x1p-1074, -38.467405617144346251}, {0.999999, 4.7534243088170877657},
      {0.9999999999, 6.3613408896974218642},
  };
  // clang-format on
  for (const known& one : table) {
    CAPTURE(one.x);
    CHECK(relative_error(potl::normal_quantile(one.x), one.value) < 1e-15);
  }
  CHECK(potl::normal_quantile(0.5) == 0.0);
}

TEST_CASE("erfinv is within 1e-15 of the exact value, and odd") {
  // clang-format off
  constexpr known table[] = {
      {1e-300, 8.8622692545275803586e-301}, {1e-10, 8.8622692545275804594e-11},
      {0.001, 0.00088622715746655212301}, {0.25, 0.22531205501217810473},
      {0.5, 0.47693627620446987338}, {0.85, 1.0179024648320275882},
      {0.8500001, 1.0179027145953180268}, {0.9, 1.1630871536766741628},
      {0.99, 1.8213863677184494559}, {0.999999, 3.4589107372754987775},
      {0.9999999999999999, 5.8635847487551679272},
  };
  // clang-format on
  for (const known& one : table) {
    CAPTURE(one.x);
    CHECK(relative_error(potl::erfinv(one.x), one.value) < 1e-15);
    CHECK(potl::erfinv(-one.x) == -potl::erfinv(one.x));
  }
  CHECK(potl::erfinv(0.0) == 0.0);
}

TEST_CASE("erf takes erfinv back, all along the interval") {
  for (int i = -999; i <= 999; ++i) {
    const double x = i / 1000.0;
    REQUIRE(std::abs(std::erf(potl::erfinv(x)) - x) <= 4e-16);
  }
}

TEST_CASE("the logarithm is within 1 ulp") {
  const auto check = [](double x) {
    const double expected = std::log(x);  // itself within 1 ulp
    const double ulp = std::nextafter(std::abs(expected), infinity) - std::abs(expected);
    return std::abs(potl::exact_log(x) - expected) <= 2 * ulp;
  };
  for (int exponent = -1074; exponent < 1024; ++exponent) {
    for (double m : {1.0, 1.0001, 1.2, 1.4142135, 1.4142136, 1.5, 1.9999}) {
      const double x = std::ldexp(m, exponent);
      CAPTURE(x);
      if (x != 1.0) REQUIRE(check(x));
    }
  }
  REQUIRE(potl::exact_log(1.0) == 0.0);
  REQUIRE(check(std::nextafter(1.0, 0.0)));
  REQUIRE(check(std::nextafter(1.0, 2.0)));
}

TEST_CASE("ends and impossible arguments") {
  CHECK(potl::normal_quantile(0.0) == -infinity);
  CHECK(potl::normal_quantile(1.0) == infinity);
  CHECK(std::isnan(potl::normal_quantile(-0.1)));
  CHECK(std::isnan(potl::normal_quantile(std::nan(""))));
  CHECK(potl::erfinv(-1.0) == -infinity);
  CHECK(potl::erfinv(1.0) == infinity);
  CHECK(std::isnan(potl::erfinv(1.5)));
  CHECK(std::isnan(potl::erfinv(std::nan(""))));
  CHECK(potl::exact_log(0.0) == -infinity);
  CHECK(potl::exact_log(infinity) == infinity);
  CHECK(std::isnan(potl::exact_log(-1.0)));
}

TEST_CASE("erfinv of float32 is the double value, rounded once") {
  float values[] = {0.1f, -0.7f, 0.999f};
  float expected[] = {0.1f, -0.7f, 0.999f};
  for (float& x : expected) x = static_cast<float>(potl::erfinv(x));
  potl::fill_erfinv(values);
  for (int i = 0; i < 3; ++i) CHECK(values[i] == expected[i]);
}

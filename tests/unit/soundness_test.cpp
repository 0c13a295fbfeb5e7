// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

#include <potl/statistics/detail/soundness.hpp>

using namespace potl::statistics;

TEST_CASE("one percent of 250 segments is seen by 12 samples with probability .09") {
  REQUIRE(strength(250, 12, 0.01) == Approx(1 - 238.0 * 237.0 / (250.0 * 249.0)).epsilon(1e-12));
  REQUIRE(std::round(strength(250, 12, 0.01) * 100) == 9);
}

TEST_CASE("seeing one percent of 250 segments with probability .99 takes 225 samples") {
  REQUIRE(samples_for(250, 0.99, 0.01) == 225);
}

TEST_CASE("57 of 1,000 segments see five percent with probability .95") {
  REQUIRE(samples_for(1000, 0.95, 0.05) == 57);
}

TEST_CASE("detection without replacement equals the ratio of binomial coefficients") {
  // 1 - C(7,3)/C(10,3) = 1 - 35/120
  REQUIRE(detection_without_replacement(10, 3, 3) == Approx(85.0 / 120).epsilon(1e-14));
  REQUIRE(detection_without_replacement(10, 3, 8) == 1);
  REQUIRE(detection_without_replacement(10, 0, 5) == 0);
  REQUIRE(detection_without_replacement(10, 5, 0) == 0);
  REQUIRE(detection_without_replacement(0, 5, 5) == 0);
}

TEST_CASE("detection without replacement is symmetric in bad and sampled units") {
  REQUIRE(detection_without_replacement(1000, 37, 210) ==
          detection_without_replacement(1000, 210, 37));
}

TEST_CASE("the sum of more than a million terms continues the exact one smoothly") {
  // With both counts at 2^20 + 1 of 2^42, the probability is 1 - exp(-1/4) but for 1e-6.
  const std::uint64_t some = (std::uint64_t{1} << 20) + 1, units = std::uint64_t{1} << 42;
  const double m = static_cast<double>(some), b = static_cast<double>(units);
  // ln of the miss: m ln(1 - V/B) - (m^2/2B) (V/B) / (1 - V/B) - ...
  const double expected = -std::expm1(m * std::log1p(-m / b) - m * m / (2 * b) * (m / b));
  REQUIRE(detection_without_replacement(units, some, some) == Approx(expected).epsilon(1e-9));
}

TEST_CASE("populations of 10^12 units are handled exactly") {
  REQUIRE(detection_without_replacement(1'000'000'000'000, 10'000'000'000, 299) ==
          Approx(-std::expm1(299 * std::log1p(-0.01))).epsilon(1e-6));
}

TEST_CASE("a cheat is packed into whole segments, at least one, without rounding errors") {
  REQUIRE(packed_units(250, 0.01) == 2);
  REQUIRE(packed_units(100, 0.29) == 29);
  REQUIRE(packed_units(12, 0.01) == 1);
  REQUIRE(packed_units(12, 1) == 12);
  REQUIRE(packed_units(0, 0.5) == 0);
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  REQUIRE(packed_units(most, 1 - 0x1p-53) == most);
}

TEST_CASE("the checking probability for .999 is the one of the table for 1, 10, 100 and 1000") {
  REQUIRE(check_probability_for(0.999, 1) == Approx(0.999));
  REQUIRE(check_probability_for(0.999, 10) == Approx(0.499).epsilon(1e-3));
  REQUIRE(check_probability_for(0.999, 100) == Approx(0.067).epsilon(1e-2));
  REQUIRE(check_probability_for(0.999, 1000) == Approx(0.0069).epsilon(1e-2));
}

TEST_CASE("a draw that must hit is certain to") {
  REQUIRE(detection_without_replacement(10, 6, 5) == 1);
  REQUIRE(detection_without_replacement(10, 8, 5) == 1);
  REQUIRE(detection_without_replacement(10, 5, 5) < 1);
}

// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>

#include <potl/statistics/detail/binomial.hpp>

using namespace potl::statistics;

TEST_CASE("small binomial tails are exact rationals") {
  REQUIRE(binomial_upper_tail(3, 2, 0.5) == Approx(4.0 / 8).epsilon(1e-14));
  REQUIRE(binomial_upper_tail(10, 8, 0.5) == Approx(56.0 / 1024).epsilon(1e-14));
  REQUIRE(binomial_upper_tail(10, 3, 0.5) == Approx(968.0 / 1024).epsilon(1e-14));
  // 1 - (2/3)^4 - 4 (1/3) (2/3)^3
  REQUIRE(binomial_upper_tail(4, 2, 1.0 / 3) == Approx(33.0 / 81).epsilon(1e-13));
  REQUIRE(binomial_lower_tail(4, 1, 1.0 / 3) == Approx(48.0 / 81).epsilon(1e-13));
}

TEST_CASE("tails at the ends are 0 and 1") {
  REQUIRE(binomial_upper_tail(10, 0, 0.3) == 1);
  REQUIRE(binomial_upper_tail(10, 11, 0.3) == 0);
  REQUIRE(binomial_upper_tail(10, 1, 0) == 0);
  REQUIRE(binomial_upper_tail(10, 10, 1) == 1);
  REQUIRE(binomial_lower_tail(10, 10, 0.3) == 1);
}

TEST_CASE("a tail far below the smallest ordinary probability keeps its digits") {
  // Exactly 2^-400.
  REQUIRE(binomial_upper_tail(400, 400, 0.5) == Approx(0x1p-400).epsilon(1e-11));
}

TEST_CASE("a tail with thousands of trials agrees with its exact value") {
  // Sum of C(4000, k) 2^-4000 for k >= 2100, by exact integer arithmetic.
  REQUIRE(binomial_upper_tail(4000, 2100, 0.5) == Approx(0.0008246331875678499).epsilon(1e-10));
}

TEST_CASE("an interval without successes starts at zero and ends where the tail says") {
  const interval none = proportion_interval(10, 0, 0.95);
  REQUIRE(none.low == 0);
  REQUIRE(none.high == Approx(1 - std::pow(0.025, 0.1)).epsilon(1e-12));
}

TEST_CASE("an interval is symmetric in successes and failures") {
  const interval few = proportion_interval(20, 3, 0.99), many = proportion_interval(20, 17, 0.99);
  REQUIRE(few.low == Approx(1 - many.high).epsilon(1e-12));
  REQUIRE(few.high == Approx(1 - many.low).epsilon(1e-12));
}

TEST_CASE("the ends of an interval have the tails that its confidence leaves") {
  const interval some = proportion_interval(50, 12, 0.95);
  REQUIRE(binomial_upper_tail(50, 12, some.low) == Approx(0.025).epsilon(1e-9));
  REQUIRE(binomial_lower_tail(50, 12, some.high) == Approx(0.025).epsilon(1e-9));
}

TEST_CASE("without trials nothing is known about a proportion") {
  REQUIRE(proportion_interval(0, 0, 0.95).low == 0);
  REQUIRE(proportion_interval(0, 0, 0.95).high == 1);
}

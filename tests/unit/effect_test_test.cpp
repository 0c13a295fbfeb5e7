// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <cmath>

#include <potl/core/detail/rng.hpp>
#include <potl/core/error.hpp>
#include <potl/statistics/detail/binomial.hpp>
#include <potl/statistics/detail/two_sample.hpp>

using namespace potl::statistics;
using u64 = std::uint64_t;

TEST_CASE("an effect's p-value is the best hinge over a binomial share, by definition") {
  for (const u64 n : {1u, 2u, 7u, 40u}) {
    for (const double share : {0.5, 0.65, 0.9}) {
      const effect_test test(n, share);
      for (double seen = 0; seen <= 1; seen += 0.0625) {
        double best = 1;
        for (u64 k = 0; k < n; ++k) {
          const double beyond = static_cast<double>(n) * seen - static_cast<double>(k);
          if (beyond <= 0) break;
          double excess = 0;
          for (u64 j = k + 1; j <= n; ++j) excess += binomial_upper_tail(n, j, share);
          best = std::min(best, excess / beyond);
        }
        INFO(n << " " << share << " " << seen);
        REQUIRE(test.p_value(seen) >= best);
        // Hinges below the mean are not looked at: they are the best where nothing is shown.
        if (best < 0.5) REQUIRE(test.p_value(seen) == Approx(best).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("an effect's p-value is no less than the binomial tail, and not e^1.2 times as much") {
  const effect_test test(200, 0.65);
  for (u64 hits = 135; hits <= 170; ++hits) {
    const double tail = binomial_upper_tail(200, hits, 0.65);
    REQUIRE(test.p_value(static_cast<double>(hits) / 200) >= tail);
    REQUIRE(test.p_value(static_cast<double>(hits) / 200) <= 3.4 * tail);
  }
}

TEST_CASE("the needed effect is the smallest that is enough, and falls with the pairs") {
  double last = 1;
  for (const u64 n : {100u, 200u, 400u, 10'000u, 1'000'000u}) {
    const effect_test test(n, 0.65);
    const double needed = test.needed(0.01);
    REQUIRE(test.p_value(needed) <= 0.01);
    REQUIRE(test.p_value(needed - 1e-6) > 0.01);
    REQUIRE(needed < last);
    REQUIRE(needed > 0.65);
    last = needed;
  }
  REQUIRE(effect_test(200, 0.65).needed(0.01) == Approx(0.738).margin(0.001));
  REQUIRE(effect_test(1'000'000, 0.65).needed(0.01) < 0.652);
  REQUIRE(effect_test(20, 0.95).needed(0.01) == 2);  // 0.95^20 is 0.36
}

TEST_CASE("values whose effect is no larger than the share pass no more often than the level") {
  // Two points each: a value of the first is below one of the second with 0.65, equal never.
  u64 wrong = 0;
  constexpr u64 trials = 400, n = 100, m = 400;
  const effect_test test(n, 0.65);
  for (u64 trial = 0; trial < trials; ++trial) {
    std::vector<double> first, second;
    for (u64 i = 0; i < n; ++i) {
      const bool low = potl::random_below({trial, 1}, i, 100) < 65;
      first.push_back(low ? 0 : 2);
    }
    for (u64 i = 0; i < m; ++i) second.push_back(1);
    const double effect = 1 - mann_whitney_less(first, second).u / static_cast<double>(n * m);
    wrong += test.p_value(effect) <= 0.05;
  }
  // Six standard deviations above a level of 5 %: false alarms below 1e-6.
  REQUIRE(static_cast<double>(wrong) < 0.05 * trials + 6 * std::sqrt(trials * 0.05 * 0.95));
}

TEST_CASE("an effect is tested with pairs and a share that make sense") {
  REQUIRE_THROWS_AS(effect_test(0, 0.6), potl::exception);
  REQUIRE_THROWS_AS(effect_test(10, 0), potl::exception);
  REQUIRE_THROWS_AS(effect_test(10, 1), potl::exception);
  REQUIRE_THROWS_AS(effect_test(10, std::nan("")), potl::exception);
}

// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include <potl/core/detail/rng.hpp>
#include <potl/core/error.hpp>
#include <potl/statistics/detail/two_sample.hpp>

using namespace potl::statistics;
using u64 = std::uint64_t;

namespace {

double pmf(u64 trials, u64 hits, double p) {
  const auto n = static_cast<double>(trials), k = static_cast<double>(hits);
  double choose = 1;
  for (double i = 0; i < k; ++i) choose = choose * (n - i) / (i + 1);
  return choose * std::pow(p, k) * std::pow(1 - p, n - k);
}

// The largest probability of a table that scores at least as much, over the whole null hypothesis:
// every pair of proportions on a lattice, not only those that differ by the margin.
double brute_force(const difference_test& test, u64 n, u64 m, double margin, u64 x, u64 y) {
  const double seen = test.score(x, y) - 1e-9;
  constexpr int lattice = 60;
  double worst = 0;
  for (int i = 0; i <= lattice; ++i) {
    const double q = static_cast<double>(i) / lattice;
    for (int j = 0; j <= 8; ++j) {
      const double p = std::min(1.0, (q + margin) * j / 8);
      double sum = 0;
      for (u64 a = 0; a <= n; ++a) {
        for (u64 b = 0; b <= m; ++b) {
          if (test.score(a, b) >= seen) sum += pmf(n, a, p) * pmf(m, b, q);
        }
      }
      worst = std::max(worst, sum);
    }
  }
  return worst;
}

// P(rank sum of the first <= observed) over all splits of the pooled values, by enumeration.
double enumerated(const std::vector<double>& first, const std::vector<double>& second) {
  std::vector<double> all = first;
  all.insert(all.end(), second.begin(), second.end());
  const auto doubled_u = [&](unsigned mask) {
    int u = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = 0; j < all.size(); ++j) {
        if (!(mask >> i & 1) || mask >> j & 1) continue;
        u += all[i] > all[j] ? 2 : all[i] == all[j] ? 1 : 0;
      }
    }
    return u;
  };
  const unsigned seen = (1u << first.size()) - 1;
  const int limit = doubled_u(seen);
  double low = 0, total = 0;
  for (unsigned mask = 0; mask < 1u << all.size(); ++mask) {
    if (std::popcount(mask) != static_cast<int>(first.size())) continue;
    ++total;
    low += doubled_u(mask) <= limit;
  }
  return low / total;
}

std::vector<double> values(u64 seed, std::size_t count, u64 different) {
  std::vector<double> out;
  for (u64 i = 0; i < count; ++i) {
    out.push_back(static_cast<double>(potl::random_below({seed, 0}, i, different)));
  }
  return out;
}

}  // namespace

TEST_CASE("the test of a difference agrees with a search of the whole null hypothesis") {
  const std::vector<std::pair<u64, u64>> sizes{{5, 5}, {4, 9}, {8, 6}};
  for (const auto& [n, m] : sizes) {
    for (const double margin : {0.0, 0.03, 0.2}) {
      const difference_test test(n, m, margin);
      for (u64 x = 0; x <= n; ++x) {
        for (u64 y = 0; y <= m; y += 2) {
          const double exact = test.p_value(x, y), searched = brute_force(test, n, m, margin, x, y);
          INFO(n << " " << m << " " << margin << " " << x << " " << y);
          REQUIRE(searched <= exact * (1 + 1e-9));   // nothing in the null hypothesis beats it
          REQUIRE(exact <= searched * 1.04 + 1e-6);  // and it is attained, lattice apart
        }
      }
    }
  }
}

TEST_CASE("the score grows with hits of the first sample and falls with those of the second") {
  for (const double margin : {0.0, 0.03, 0.5}) {
    const difference_test test(20, 35, margin);
    for (u64 y = 0; y <= 35; ++y) {
      for (u64 x = 0; x <= 20; ++x) {
        if (x > 0) REQUIRE(test.score(x, y) >= test.score(x - 1, y) - 1e-12);
        if (y > 0) REQUIRE(test.score(x, y) <= test.score(x, y - 1) + 1e-12);
      }
    }
  }
}

TEST_CASE("the score is the published one") {
  // Restricted estimates by maximising the likelihood on a fine line instead of the cubic's root.
  const double n = 400, m = 1600, margin = 0.03;
  for (const auto& [x, y] : {std::pair{68.0, 160.0}, {120.0, 100.0}, {0.0, 3.0}, {400.0, 1590.0}}) {
    double best = -1e300, share = 0;
    for (int i = 1; i < 970000; ++i) {
      const double q = i * 1e-6, p = q + margin;
      const double value =
          x * std::log(p) + (n - x) * std::log1p(-p) + y * std::log(q) + (m - y) * std::log1p(-q);
      if (value > best) best = value, share = q;
    }
    const double p = share + margin;
    const double expected =
        (x / n - y / m - margin) / std::sqrt(p * (1 - p) / n + share * (1 - share) / m);
    const difference_test test(400, 1600, margin);
    REQUIRE(test.score(static_cast<u64>(x), static_cast<u64>(y)) ==
            Approx(expected).epsilon(1e-4).margin(1e-4));
  }
}

TEST_CASE("the hits needed are the fewest with a p-value within the level") {
  const difference_test test(40, 80, 0.03);
  const auto all = test.needed_for_all(0.01);
  for (const u64 y : {0u, 8u, 30u, 80u}) {
    const u64 needed = test.needed(0.01, y);
    INFO(y << " " << needed);
    REQUIRE(all[y] == needed);
    if (needed <= 40) REQUIRE(test.p_value(needed, y) <= 0.01);
    if (needed > 0) REQUIRE(test.p_value(needed - 1, y) > 0.01);
  }
  REQUIRE(test.needed(0.01, 80) == 41);  // nobody is by a margin above certainty
}

TEST_CASE("the hits needed are found from any level and number of hits of the second sample") {
  for (const auto& [n, m] : std::vector<std::pair<u64, u64>>{{6, 9}, {30, 30}, {25, 100}}) {
    for (const double margin : {0.0, 0.03, 0.4}) {
      const difference_test test(n, m, margin);
      for (const double level : {1e-6, 0.002, 0.01, 0.3, 0.9}) {
        for (u64 y = 0; y <= m; y += 3) {
          u64 wanted = 0;
          while (wanted <= n && test.p_value(wanted, y) > level) ++wanted;
          INFO(n << " " << m << " " << margin << " " << level << " " << y);
          REQUIRE(test.needed(level, y) == wanted);
        }
      }
    }
  }
}

TEST_CASE("equal proportions are not a difference beyond a margin") {
  const difference_test test(200, 200, 0.03);
  REQUIRE(test.p_value(100, 100) > 0.5);
  REQUIRE(test.p_value(0, 0) > 0.5);
  REQUIRE(test.p_value(200, 200) > 0.5);
  REQUIRE(test.p_value(200, 0) < 1e-30);
}

TEST_CASE("a difference needs trials and a margin below one") {
  REQUIRE_THROWS_AS(difference_test(0, 5, 0.1), potl::exception);
  REQUIRE_THROWS_AS(difference_test(5, 0, 0.1), potl::exception);
  REQUIRE_THROWS_AS(difference_test(5, 5, 1), potl::exception);
  REQUIRE_THROWS_AS(difference_test(5, 5, std::nan("")), potl::exception);
}

TEST_CASE("ranks of few values are enumerated, ties included") {
  for (u64 seed = 0; seed < 12; ++seed) {
    for (const u64 different : {3u, 8u, 1000u}) {
      const auto first = values(seed, 4 + seed % 3, different);
      const auto second = values(seed + 100, 8 - seed % 4, different);
      const rank_test found = mann_whitney_less(first, second);
      INFO(seed << " " << different);
      REQUIRE(found.exact);
      REQUIRE(found.p_value == Approx(enumerated(first, second)).epsilon(1e-12));
    }
  }
}

TEST_CASE("the normal approximation of ranks continues the exact one") {
  // 25 and 25 values are exact, 25 and 26 not: one more value in the middle changes little.
  auto first = values(1, 25, 40), second = values(2, 25, 40);
  for (double& one : first) one -= 5;
  const rank_test exact = mann_whitney_less(first, second);
  second.push_back(18);
  const rank_test normal = mann_whitney_less(first, second);
  REQUIRE(exact.exact);
  REQUIRE_FALSE(normal.exact);
  REQUIRE(normal.p_value == Approx(exact.p_value).epsilon(0.1));
}

TEST_CASE("smaller values are found smaller, larger ones and equal ones are not") {
  std::vector<double> low, high, same(100, 1.0);
  for (int i = 0; i < 100; ++i) low.push_back(i), high.push_back(i + 30.5);
  REQUIRE(mann_whitney_less(low, high).p_value < 1e-6);
  REQUIRE(mann_whitney_less(high, low).p_value > 1 - 1e-6);
  REQUIRE(mann_whitney_less(low, low).p_value > 0.49);
  REQUIRE(mann_whitney_less(same, same).p_value == 1);
  REQUIRE(mann_whitney_less(std::vector<double>(5, 1.0), std::vector<double>(5, 1.0)).p_value == 1);
  REQUIRE(mann_whitney_less({}, low).p_value == 1);
  REQUIRE(mann_whitney_less(low, high).u == Approx(70 * 69 / 2));
}

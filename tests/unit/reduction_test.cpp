// SPDX-License-Identifier: Apache-2.0
// The order of sums, revealed from outside, and every layout, thread count and level against it.
#include <cmath>

#include <potl/core/error.hpp>
#include <potl/numeric/reduction.hpp>

#include "catch.hpp"
#include "numeric_levels.hpp"
#include "sum_definition.hpp"

using namespace potl::numeric;
using namespace potl::test;

namespace {

template <class Real>
Real sum_of(const std::vector<Real>& x) {
  Real y = 7;
  reduce(reduction::sum, {1, static_cast<std::int64_t>(x.size()), 1}, x.data(), &y,
         inline_executor());
  return y;
}

template <class Real>
std::vector<Real> normal_values(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::normal_distribution<double> normal;
  std::vector<Real> values(count);
  for (Real& one : values)
    one = static_cast<Real>(std::ldexp(normal(draw), static_cast<int>(draw() % 20)));
  return values;
}

template <class Real>
std::vector<Real> along(const std::vector<Real>& x, const reduction_shape& s, std::int64_t o,
                        std::int64_t i) {
  std::vector<Real> terms;
  for (std::int64_t k = 0; k < s.count; ++k)
    terms.push_back(x[static_cast<std::size_t>((o * s.count + k) * s.inner + i)]);
  return terms;
}

/// out[outer][inner] = of(the sequence).
template <class Real, class Function>
std::vector<Real> by_definition(const std::vector<Real>& x, const reduction_shape& s,
                                const Function& of) {
  std::vector<Real> out;
  for (std::int64_t o = 0; o < s.outer; ++o)
    for (std::int64_t i = 0; i < s.inner; ++i) out.push_back(of(along(x, s, o, i)));
  return out;
}

template <class Real>
void layouts() {
  const auto pool = make_thread_pool(4);
  const auto two = make_thread_pool(2);
  for (const reduction_shape s : {reduction_shape{3, 1, 1},
                                  {2, 31, 1},
                                  {2, 33, 3},
                                  {1, 64, 130},
                                  {3, 100, 1},
                                  {5, 4095, 1},
                                  {1, 4096, 2},
                                  {2, 4097, 1},
                                  {1, 4097, 129},
                                  {1, 20000, 1},
                                  {1, 20000, 5},
                                  {0, 5, 3},
                                  {3, 0, 2},
                                  {200, 10, 1},
                                  {40, 7, 40},
                                  {1, 3, 1000}}) {
    const auto x = normal_values<Real>(static_cast<std::size_t>(s.outer * s.count * s.inner), 5);
    const auto y = normal_values<Real>(x.size(), 6);
    const auto sums = by_definition(x, s, [](const auto& t) { return defined_sum(t); });
    const auto norms = by_definition(x, s, [](auto t) {
      for (Real& one : t) one *= one;
      return std::sqrt(defined_sum(t));
    });
    auto products = x;
    for (std::size_t i = 0; i < x.size(); ++i) products[i] *= y[i];
    const auto dots = by_definition(products, s, [](const auto& t) { return defined_sum(t); });
    const auto means = by_definition(
        x, s, [](const auto& t) { return defined_sum(t) / static_cast<Real>(t.size()); });
    const auto variances = by_definition(x, s, [](auto t) {
      const Real mean = defined_sum(t) / static_cast<Real>(t.size());
      for (Real& one : t) one = (one - mean) * (one - mean);
      return defined_sum(t) / static_cast<Real>(t.size() - 1);
    });
    const auto maxima = by_definition(x, s, [](const auto& t) {
      return t.empty() ? Real(0) : *std::max_element(t.begin(), t.end());
    });
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(level) << " " << s.outer << " x " << s.count << " x " << s.inner);
      const guarded from(x, at), other(y, at);
      for (const executor* workers :
           std::vector<const executor*>{&inline_executor(), pool.get(), two.get()}) {
        guarded<Real> got(sums.size(), at), spread(sums.size(), at);
        reduce(reduction::sum, s, from.data(), got.data(), *workers);
        CHECK(same_bits(got, sums));
        reduce(reduction::norm, s, from.data(), got.data(), *workers);
        CHECK(same_bits(got, norms));
        sum_products(s, from.data(), other.data(), got.data(), *workers);
        CHECK(same_bits(got, dots));
        if (s.count > 0) {
          reduce(reduction::maximum, s, from.data(), got.data(), *workers);
          CHECK(same_bits(got, maxima));
        }
        if (s.count < 2) continue;
        variance(s, from.data(), 1, got.data(), spread.data(), *workers);
        CHECK(same_bits(got, means));
        CHECK(same_bits(spread, variances));
      }
    });
  }
}

}  // namespace

TEST_CASE("a sum has the documented order, seen from outside", "[reduction]") {
  // With M at i and -M at j, exactly the ones added to M before -M arrives are lost. The number of
  // ones that survive is known for the documented tree.
  for (const std::size_t n : {5U, 32U, 100U, 4096U, 9000U}) {
    std::mt19937_64 draw(n);
    for (int round = 0; round < 300; ++round) {
      const std::size_t i = draw() % n, j = draw() % n;
      if (i == j) continue;
      std::vector<float> x(n, 1.0F);
      x[i] = 0x1p60F;
      x[j] = -0x1p60F;
      INFO(n << " terms, " << i << " and " << j);
      CHECK(sum_of(x) == static_cast<float>(surviving_ones(n, i, j)));
    }
  }
}

TEST_CASE("sums are the defined ones in every layout, with any threads, at every level",
          "[reduction]") {
  layouts<float>();
  layouts<double>();
}

TEST_CASE("sums of zeros, infinities and NaNs", "[reduction]") {
  const float infinity = std::numeric_limits<float>::infinity();
  at_each_level([&](isa) {
    CHECK(bits(sum_of<float>({-0.0F, -0.0F})) == 0);
    CHECK(bits(sum_of<float>({})) == 0);
    CHECK(sum_of<float>({infinity, 1}) == infinity);
    CHECK(bits(sum_of<float>({infinity, -infinity})) == 0x7FC00000);
    CHECK(bits(sum_of<float>({-std::numeric_limits<float>::quiet_NaN(), 1})) == 0x7FC00000);
  });
}

TEST_CASE("extremes are exact, NaN wins and +0 is larger than -0", "[reduction]") {
  const auto x = hostile<float>(300, 77);
  std::vector<float> numbers;
  for (const float one : x)
    if (one == one) numbers.push_back(one);
  at_each_level_and_end([&](isa, guarded_end at) {
    const auto reduced = [at](reduction kind, const std::vector<float>& v, std::int64_t inner) {
      const std::int64_t count = static_cast<std::int64_t>(v.size()) / inner;
      const guarded from(v, at);
      guarded<float> y(static_cast<std::size_t>(inner), at);
      reduce(kind, {1, count, inner}, from.data(), y.data(), inline_executor());
      return y[0];
    };
    CHECK(reduced(reduction::maximum, numbers, 1) == std::numeric_limits<float>::infinity());
    CHECK(reduced(reduction::minimum, numbers, 1) == -std::numeric_limits<float>::infinity());
    for (const reduction kind : {reduction::maximum, reduction::minimum}) {
      CHECK(bits(reduced(kind, x, 1)) == 0x7FC00000);
      for (const std::size_t n : {3U, 40U, 5000U}) {
        const auto v = normal_values<float>(n, n);
        const float want = kind == reduction::maximum ? *std::max_element(v.begin(), v.end())
                                                      : *std::min_element(v.begin(), v.end());
        CHECK(reduced(kind, v, 1) == want);
      }
    }
    for (const std::int64_t inner : {1, 2})
      for (const auto& zeros : {std::vector<float>{-0.0F, -0.0F, 0.0F, 0.0F},
                                std::vector<float>{0.0F, 0.0F, -0.0F, -0.0F}}) {
        CHECK(bits(reduced(reduction::maximum, zeros, inner)) == 0);
        CHECK(bits(reduced(reduction::minimum, zeros, inner)) == 0x80000000);
      }
  });
}

TEST_CASE("cumulative sums and products go from the first element on", "[reduction]") {
  const reduction_shape s{2, 50, 3};
  const auto x = normal_values<float>(300, 8);
  const auto pool = make_thread_pool(3);
  for (const guarded_end at : guarded_ends) {
    const guarded from(x, at);
    guarded<float> sums(300, at), products(300, at);
    guarded in_place(x, at);
    cumulative_sum(s, from.data(), sums.data(), *pool);
    cumulative_product(s, from.data(), products.data(), *pool);
    cumulative_sum(s, in_place.data(), in_place.data(), *pool);
    CHECK(same_bits(in_place, sums));
    for (std::size_t i = 0; i < 300; ++i) {
      const bool first = i % 150 < 3;
      CHECK(bits(sums[i]) == bits(first ? x[i] : sums[i - 3] + x[i]));
      CHECK(bits(products[i]) == bits(first ? x[i] : products[i - 3] * x[i]));
    }
  }
}

TEST_CASE("impossible reductions are refused", "[reduction]") {
  float x = 1, y = 0;
  const executor& e = inline_executor();
  CHECK_THROWS_AS(reduce(reduction::sum, {1, -1, 1}, &x, &y, e), potl::exception);
  CHECK_THROWS_AS(reduce(reduction::maximum, {1, 0, 1}, &x, &y, e), potl::exception);
}

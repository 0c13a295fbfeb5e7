// SPDX-License-Identifier: Apache-2.0
// Accuracy against long double, special values, and that nothing but the value decides the bits.
#include <cmath>
#include <functional>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/random.hpp>
#include <potl/numeric/elementwise.hpp>

#include "catch.hpp"
#include "elementwise_reference.hpp"
#include "numeric_levels.hpp"

using namespace potl::numeric;
using namespace potl::test;

namespace {

template <class Real>
std::vector<Real> applied(unary function, const std::vector<Real>& x, guarded_end at,
                          const executor& workers) {
  const guarded from(x, at);
  guarded<Real> y(x.size(), at);
  apply(function, std::span<const Real>(from), std::span<Real>(y), workers);
  return {y.begin(), y.end()};
}

template <class Function, class Real>
std::vector<Real> applied(Function function, const std::vector<Real>& a, const std::vector<Real>& b,
                          guarded_end at) {
  const guarded first(a, at), second(b, at);
  guarded<Real> y(a.size(), at);
  apply(function, std::span<const Real>(first), second, y, inline_executor());
  return {y.begin(), y.end()};
}

template <class Real>
void level_check(std::uint64_t seed) {
  const auto x = hostile<Real>(2999, seed);
  auto other = hostile<Real>(2999, seed + 1);
  std::reverse(other.begin(), other.end());
  for (const reference& row : references()) {
    const std::vector<Real> expected = [&] {
      std::vector<Real> y;
      for (const Real one : x) y.push_back(evaluate(row.function, one));
      return y;
    }();
    for (const Real one : expected)
      if (one != one) CHECK(bits(one) == bits(std::numeric_limits<Real>::quiet_NaN()));
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(row.function) << " at " << to_string(level));
      CHECK(same_bits(applied(row.function, x, at, inline_executor()), expected));
    });
  }
  for (const gradient f : all_gradients) {
    std::vector<Real> expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = evaluate(f, other[i], x[i]);
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(f) << " gradient at " << to_string(level));
      CHECK(same_bits(applied(f, other, x, at), expected));
    });
  }
  for (const binary f : {binary::pow, binary::logaddexp, binary::xlogy}) {
    std::vector<Real> expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = evaluate(f, x[i], other[i]);
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(f) << " at " << to_string(level));
      CHECK(same_bits(applied(f, x, other, at), expected));
    });
  }
}

}  // namespace

TEST_CASE("float functions are within 1 ulp on samples of all inputs", "[elementwise]") {
  std::mt19937 draw(20240817);
  for (const reference& row : references()) {
    double worst = 0;
    float at = 0;
    for (int i = 0; i < 60000; ++i) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(draw()));
      const double error = ulps(evaluate(row.function, x), row.exact(x));
      if (error > worst) {
        worst = error;
        at = x;
      }
    }
    INFO(to_string(row.function) << " is " << worst << " ulp off at " << at);
    CHECK(worst < 1.0);
  }
}

TEST_CASE("double functions are within their documented bounds", "[elementwise]") {
  std::mt19937_64 draw(20240818);
  for (const reference& row : references()) {
    double worst = 0, at = 0;
    for (int i = 0; i < 20000; ++i) {
      double x = std::ldexp(static_cast<double>(draw() >> 11), -50) - 4;  // [-4, 4)
      if (i % 2 == 0) x *= std::ldexp(1.0, static_cast<int>(draw() % 16) - 8);
      if (std::fabs(x) > row.double_range) continue;
      const double error = ulps(evaluate(row.function, x), row.exact(x));
      if (error > worst) {
        worst = error;
        at = x;
      }
    }
    INFO(to_string(row.function) << " is " << worst << " ulp off at " << at);
    CHECK(worst <= row.double_bound);
  }
}

TEST_CASE("float results are the same at every level", "[elementwise]") { level_check<float>(1); }
TEST_CASE("double results are the same at every level", "[elementwise]") { level_check<double>(2); }

TEST_CASE("position, alignment and threads do not change a result", "[elementwise]") {
  const auto pool = make_thread_pool(3);
  const auto x = hostile<float>(20000, 5);
  for (const unary f : {unary::exp, unary::gelu, unary::sin}) {
    std::vector<float> one_by_one;
    for (const float value : x) one_by_one.push_back(evaluate(f, value));
    at_each_level_and_end([&](isa, guarded_end at) {
      CHECK(same_bits(applied(f, x, at, *pool), one_by_one));
      for (const std::size_t first : {1U, 3U, 7U})
        for (const std::size_t count : {0U, 1U, 5U, 17U, 63U}) {
          std::vector<float> y(count + 2, 7.0F);
          apply(f, std::span(x).subspan(first, count), std::span(y).subspan(1, count), *pool);
          CHECK(y.front() == 7.0F);
          CHECK(y.back() == 7.0F);
          for (std::size_t i = 0; i < count; ++i)
            CHECK(bits(y[i + 1]) == bits(one_by_one[first + i]));
          const auto part = std::span(x).subspan(first, count);
          const std::vector<float> alone(part.begin(), part.end());
          CHECK(same_bits(applied(f, alone, at, *pool), std::span(y).subspan(1, count)));
        }
      std::vector<float> in_place = x;
      apply(f, std::span<const float>(in_place), std::span<float>(in_place), *pool);
      CHECK(same_bits(in_place, one_by_one));
    });
  }
}

TEST_CASE("pow has the special cases of IEEE 754", "[elementwise]") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> values{0.0,  -0.0,  1.0,    -1.0,     2.0,       -2.0, 0.5, -0.5, 3.0,
                                   -3.0, 1e300, -1e300, infinity, -infinity, nan,  7.0, -7.0, 2.5};
  for (const double x : values)
    for (const double y : values) {
      INFO(x << " ^ " << y);
      const double got = exact_pow(x, y), want = std::pow(x, y);
      if (want != want) {
        CHECK(got != got);
      } else if (want == 0 || std::isinf(want) || want == 1) {
        CHECK(bits(got) == bits(want));
      } else {
        CHECK(ulps(got, std::pow(static_cast<long double>(x), y)) < 1.0);
      }
    }
  std::mt19937_64 draw(3);
  for (int i = 0; i < 20000; ++i) {
    const double x =
        std::ldexp(static_cast<double>(draw() >> 11), -53 + static_cast<int>(draw() % 9));
    const double y = std::ldexp(static_cast<double>(draw() >> 11), -47) - 32;
    const long double want = std::pow(static_cast<long double>(x), y);
    CHECK(ulps(exact_pow(x, y), want) < 1.0);
    CHECK(ulps(evaluate(binary::pow, static_cast<float>(x), static_cast<float>(y)),
               std::pow(static_cast<long double>(static_cast<float>(x)),
                        static_cast<long double>(static_cast<float>(y)))) < 0.5001);
  }
  CHECK(exact_pow(0.999, 1000.0) == Approx(0.36769542477096406).epsilon(1e-15));
}

TEST_CASE("one power for all gives each element the bits of its own", "[elementwise]") {
  const auto check = []<class Real>(const std::vector<Real>& x) {
    for (const double power : {0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 2.5}) {
      const auto y = static_cast<Real>(power);
      std::vector<Real> expected;
      for (const Real one : x) expected.push_back(evaluate(binary::pow, one, y));
      at_each_level_and_end([&](isa level, guarded_end at) {
        INFO("the power " << y << " at " << to_string(level));
        CHECK(same_bits(applied(binary::pow, x, std::vector<Real>{y}, at), expected));
      });
    }
  };
  auto x = hostile<float>(2999, 17);
  // Cubes of 25 bits: ties between two floats.
  for (float odd = 257; odd < 323; odd += 2) x.push_back(odd);
  check(x);
  check(hostile<double>(2999, 17));
}

TEST_CASE("the double logarithm is exact_log", "[elementwise]") {
  for (const double x : hostile<double>(2000, 9)) {
    const double mine = evaluate(unary::log, x), other = potl::exact_log(x);
    CHECK((bits(mine) == bits(other) || (mine != mine && other != other)));
  }
}

TEST_CASE("large angles are reduced exactly", "[elementwise]") {
  // The last is the double closest to a multiple of pi/2 (Kahan).
  for (const double x : {1048576.0, 1e15, 1e22, 1e300, 5.319372648326541e255,
                         0x1.fffffffffffffp+1023, 6381956970095103.0 * 0x1p797}) {
    CHECK(ulps(exact_sin(x), std::sin(static_cast<long double>(x))) < 1.0);
    CHECK(ulps(exact_cos(x), std::cos(static_cast<long double>(x))) < 1.0);
    CHECK(exact_sin(-x) == -exact_sin(x));
  }
}

TEST_CASE("spans of different lengths are refused", "[elementwise]") {
  std::vector<float> x(4), y(3);
  CHECK_THROWS_AS(
      apply(unary::exp, std::span<const float>(x), std::span<float>(y), inline_executor()),
      potl::exception);
}

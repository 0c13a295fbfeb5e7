// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/ieee.hpp>

#include "catch.hpp"
#include "numeric_levels.hpp"

using namespace potl::numeric;
using namespace potl::test;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
const float not_a_number = std::numeric_limits<float>::quiet_NaN();

float one(ieee_binary function, float x, float y) {
  float out = 0;
  apply(function, std::span<const float>(&x, 1), std::span<const float>(&y, 1),
        std::span<float>(&out, 1), inline_executor());
  return out;
}

/// As numeric/detail/ieee.hpp defines it, by branches and the C library.
template <class Real>
Real defined(ieee_binary function, Real x, Real y) {
  const Real rest = std::fmod(x, y);
  const bool falls_short = rest != 0 && (rest < 0) != (y < 0);
  const bool is_minimum = function == ieee_binary::minimum || function == ieee_binary::fmin;
  switch (function) {
    case ieee_binary::fmod: return rest;
    case ieee_binary::remainder: return falls_short ? rest + y : rest;
    case ieee_binary::floor_divide: {
      if (y == 0) return x / y;
      const Real quotient = (x - rest) / y - (falls_short ? 1 : 0);
      if (quotient == 0) return std::copysign(Real(0), x / y);
      const Real whole = std::floor(quotient);
      return quotient - whole > Real(0.5) ? whole + 1 : whole;
    }
    case ieee_binary::trunc_divide: return std::trunc(x / y);
    case ieee_binary::fmax:
    case ieee_binary::fmin:
      if (x != x) return y;
      if (y != y) return x;
      [[fallthrough]];
    default:
      if (x != x || y != y) return x + y;
      if (x == y) return std::signbit(x) == is_minimum ? x : y;
      return (x < y) == is_minimum ? x : y;
  }
}

/// call(x, y, out) at each level, with operands and result at either end of their memory, and with
/// the result in place of an operand.
template <class Real, class Call, class Expected>
void check_each(const Call& call, const Expected& expected) {
  using view = std::span<const Real>;
  const auto all_of_x = hostile<Real>(300, 1);
  auto all_of_y = hostile<Real>(300, 2);
  std::shuffle(all_of_y.begin(), all_of_y.end(), std::mt19937(3));
  for (const std::size_t count : {std::size_t{1}, std::size_t{31}, all_of_x.size()}) {
    const view from_x(all_of_x.data(), count), from_y(all_of_y.data(), count);
    std::vector<Real> wanted, wanted_of_one;
    for (std::size_t i = 0; i < count; ++i) {
      const auto result = [&](Real y) {
        const Real value = expected(from_x[i], y);
        return value == value ? value : std::numeric_limits<Real>::quiet_NaN();
      };
      wanted.push_back(result(from_y[i]));
      wanted_of_one.push_back(result(from_y[0]));
    }
    at_each_level_and_end([&](isa level, guarded_end at) {
      INFO(to_string(level) << ", " << count << " elements");
      guarded<Real> x(from_x, at), y(from_y, at), out(count, at);
      call(view(x), view(y), std::span<Real>(out));
      CHECK(same_bits(out, wanted));
      call(view(x), view(y.data(), 1), std::span<Real>(out));
      CHECK(same_bits(out, wanted_of_one));
      call(view(x), view(y), std::span<Real>(x));
      CHECK(same_bits(x, wanted));
    });
  }
}

template <class Real>
void check_formulas() {
  using view = std::span<const Real>;
  using results = std::span<Real>;
  for (int i = 0; i <= static_cast<int>(ieee_binary::fmin); ++i) {
    const auto function = static_cast<ieee_binary>(i);
    CAPTURE(i);
    check_each<Real>(
        [&](view x, view y, results out) { apply(function, x, y, out, inline_executor()); },
        [&](Real x, Real y) { return defined(function, x, y); });
  }
  check_each<Real>([](view x, view, results out) { square_root(x, out, inline_executor()); },
                   [](Real x, Real) { return std::sqrt(x); });
  check_each<Real>(
      [](view x, view, results out) { soft_shrink(x, 0.7, out, inline_executor()); },
      [](Real x, Real) {
        const auto lambda = static_cast<Real>(0.7);
        return x > lambda ? x - lambda : x < -lambda ? x + lambda : x == x ? Real(0) : x;
      });
  check_each<Real>([](view x, view, results out) { hard_swish(x, out, inline_executor()); },
                   [](Real x, Real) {
                     const Real up = x + 3;
                     return (up < 0 ? 0 : up > 6 ? 6 : up) * x / 6;
                   });
  check_each<Real>(
      [](view x, view dy, results out) { hard_swish_gradient(dy, x, out, inline_executor()); },
      [](Real x, Real dy) { return x < -3   ? Real(0)
                                   : x <= 3 ? (x / 3 + Real(0.5)) * dy
                                            : dy; });
  constexpr bounds of{-1.3, 2};
  const auto low = static_cast<Real>(of.low), high = static_cast<Real>(of.high);
  check_each<Real>(
      [&](view x, view value, results out) { pass_between(value, x, of, out, inline_executor()); },
      [&](Real x, Real value) { return low < x && x < high ? value : Real(0); });
  check_each<Real>(
      [&](view x, view value, results out) { pass_beyond(value, x, of, out, inline_executor()); },
      [&](Real x, Real value) { return x < low || x > high ? value : Real(0); });
}

/// Dividends next to multiples of their divisors: quotients are rounded up to what they are below.
template <class Real>
void check_near_multiples(Real smallest) {
  std::mt19937_64 draw(8);
  std::vector<Real> x, y, wanted;
  for (int i = 0; i < 4096; ++i) {
    const int bits_of_quotient = static_cast<int>(draw() % std::numeric_limits<Real>::digits);
    const auto times = static_cast<Real>(draw() >> (63 - bits_of_quotient));
    const Real divisor = smallest * static_cast<Real>(1 + (draw() >> (i % 40 + 10)));
    const Real multiple = times * divisor;
    const Real dividend = std::nextafter(multiple, i % 3 == 0   ? multiple
                                                   : i % 3 == 1 ? Real(0)
                                                                : 2 * multiple);
    x.push_back(i % 2 == 0 ? dividend : -dividend);
    y.push_back(i % 5 == 0 ? divisor : -divisor);
    wanted.push_back(std::fmod(x.back(), y.back()));
  }
  at_each_level([&](isa level) {
    INFO(to_string(level));
    std::vector<Real> out(x.size());
    apply(ieee_binary::fmod, std::span<const Real>(x), std::span<const Real>(y),
          std::span<Real>(out), inline_executor());
    CHECK(same_bits(out, wanted));
  });
}

}  // namespace

TEST_CASE("remainders next to multiples of the divisor are exact at each level") {
  check_near_multiples<float>(1);
  check_near_multiples<float>(std::numeric_limits<float>::denorm_min());
  check_near_multiples<double>(1);
  check_near_multiples<double>(std::numeric_limits<double>::denorm_min());
}

TEST_CASE("each instruction set gives what exact functions are defined to be") {
  check_formulas<float>();
  check_formulas<double>();
}

TEST_CASE("a choice by a bound moves any bits at each level") {
  const auto x = hostile<float>(300, 4), yes = hostile<float>(300, 5), no = hostile<float>(300, 6);
  std::vector<float> wanted;
  for (std::size_t i = 0; i < x.size(); ++i) wanted.push_back(x[i] < 0.25F ? yes[i] : no[i]);
  using view = std::span<const float>;
  at_each_level_and_end([&](isa level, guarded_end at) {
    INFO(to_string(level));
    const guarded a(x, at), b(yes, at), c(no, at);
    guarded<float> out(x.size(), at);
    choose_below(view(a), 0.25, view(b), view(c), std::span<float>(out), inline_executor());
    CHECK(same_bits(out, wanted));
  });
}

TEST_CASE("one operand for all may lie where the first result goes") {
  // Enough for several tasks.
  const std::vector<float> x(100000, 1.0F);
  std::vector<float> y(x.size());
  y[0] = 0.25F;
  apply(ieee_binary::remainder, std::span<const float>(x), std::span<const float>(y.data(), 1),
        std::span<float>(y), inline_executor());
  CHECK(y == std::vector<float>(x.size(), 0.0F));
}

TEST_CASE("the remainder has the sign of the divisor and fmod that of the dividend") {
  CHECK(one(ieee_binary::remainder, -7.0F, 3.0F) == 2.0F);
  CHECK(one(ieee_binary::remainder, 7.0F, -3.0F) == -2.0F);
  CHECK(one(ieee_binary::fmod, -7.0F, 3.0F) == -1.0F);
  CHECK(one(ieee_binary::fmod, 0x1p127F, 3.0F) == std::fmod(0x1p127F, 3.0F));
  CHECK(bits(one(ieee_binary::remainder, 1.0F, 0.0F)) == 0x7fc00000U);
  CHECK(bits(one(ieee_binary::fmod, infinity, 2.0F)) == 0x7fc00000U);
}

TEST_CASE("a choice moves bits, of one element or of as many as there are") {
  const std::vector<std::uint8_t> where{0, 1, 2, 0, 255};
  const std::vector<std::uint32_t> yes{1, 2, 3, 4, 0xffc00001U}, one_no{0x80000000U};
  const auto pool = make_thread_pool(2);
  std::vector<std::uint32_t> out(where.size());
  choose(where, yes, one_no, out, *pool);
  CHECK(out == std::vector<std::uint32_t>{0x80000000U, 2, 3, 0x80000000U, 0xffc00001U});
  std::vector<std::uint64_t> wide(where.size());
  choose(where, std::vector<std::uint64_t>{7}, std::vector<std::uint64_t>{1, 2, 3, 4, 5}, wide,
         *pool);
  CHECK(wide == std::vector<std::uint64_t>{1, 7, 7, 4, 7});
  CHECK_THROWS_AS(choose(where, yes, std::vector<std::uint32_t>(2), out, *pool), potl::exception);
}

TEST_CASE("floor division is Python's") {
  CHECK(one(ieee_binary::floor_divide, -7.0F, 2.0F) == -4.0F);
  CHECK(one(ieee_binary::floor_divide, 7.0F, 2.0F) == 3.0F);
  CHECK(one(ieee_binary::floor_divide, 1.0F, 0.1F) == 9.0F);  // 0.1F is above a tenth
  CHECK(one(ieee_binary::floor_divide, 1.0F, 0.0F) == infinity);
  CHECK(bits(one(ieee_binary::floor_divide, -0.5F, -1.0F)) == bits(0.0F));
  CHECK(one(ieee_binary::trunc_divide, -7.0F, 2.0F) == -3.0F);
}

TEST_CASE("plus zero is the larger zero, and NaN wins unless it is asked not to") {
  CHECK(bits(one(ieee_binary::maximum, -0.0F, 0.0F)) == bits(0.0F));
  CHECK(bits(one(ieee_binary::maximum, 0.0F, -0.0F)) == bits(0.0F));
  CHECK(bits(one(ieee_binary::minimum, -0.0F, 0.0F)) == bits(-0.0F));
  CHECK(bits(one(ieee_binary::minimum, 0.0F, -0.0F)) == bits(-0.0F));
  CHECK(bits(one(ieee_binary::maximum, -not_a_number, 1.0F)) == 0x7fc00000U);
  CHECK(one(ieee_binary::fmax, not_a_number, 1.0F) == 1.0F);
  CHECK(one(ieee_binary::fmin, 1.0F, not_a_number) == 1.0F);
  CHECK(bits(one(ieee_binary::fmin, -not_a_number, not_a_number)) == 0x7fc00000U);
}

TEST_CASE("square roots are correctly rounded and keep the sign of zero") {
  std::mt19937 generator(7);
  std::vector<float> x(70001);
  for (float& value : x) value = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
  x[0] = -0.0F;
  x[1] = -1.0F;
  std::vector<float> y(x.size());
  const auto pool = make_thread_pool(3);
  square_root(x, y, *pool);
  CHECK(bits(y[0]) == bits(-0.0F));
  CHECK(bits(y[1]) == 0x7fc00000U);
  std::size_t wrong = 0;
  for (std::size_t i = 2; i < x.size(); ++i) {
    // The root in double is off by less than 2^-53: far from a tie of float32, roots being
    // irrational or exact.
    const float expected = static_cast<float>(std::sqrt(static_cast<double>(x[i])));
    wrong += expected == expected ? bits(y[i]) != bits(expected) : bits(y[i]) != 0x7fc00000U;
  }
  CHECK(wrong == 0);
}

TEST_CASE("evenly spaced values end where they should") {
  std::vector<float> x(101);
  fill_line(0.0, 1.0, x, inline_executor());
  CHECK(x.front() == 0.0F);
  CHECK(x.back() == 1.0F);
  CHECK(x[50] == 0.5F);
  fill_steps(1.0, 0.1, x, inline_executor());
  CHECK(x[100] == static_cast<float>(1.0 + 100 * 0.1));
  std::vector<float> single(1);
  fill_line(3.0, 9.0, single, inline_executor());
  CHECK(single[0] == 3.0F);
}

TEST_CASE("operands of different lengths are the caller's mistake") {
  std::vector<float> x(3), y(2), out(3);
  CHECK_THROWS_AS(apply(ieee_binary::maximum, x, y, out, inline_executor()), potl::exception);
  CHECK_THROWS_AS(square_root(std::span<const float>(y), out, inline_executor()), potl::exception);
}

TEST_CASE("between its bounds soft shrinkage is plus zero, and NaN stays") {
  const std::vector<float> x = {-2.0F, -0.5F, -0.0F, 0.25F, 0.5F, 2.0F, -not_a_number, infinity};
  std::vector<float> y(x.size());
  soft_shrink(std::span<const float>(x), 0.5, std::span<float>(y), inline_executor());
  const std::vector<std::uint32_t> expected = {bits(-1.5F),   0, 0, 0, 0, bits(1.5F), 0x7fc00000U,
                                               bits(infinity)};
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(bits(y[i]) == expected[i]);
}

TEST_CASE("a choice by a bound takes the other value where the operand is NaN or the bound") {
  const std::vector<float> x = {-1.0F, 1.0F, 2.0F, -infinity, not_a_number};
  const std::vector<float> yes = {1, 2, 3, -0.0F, 5}, no(1, -7.0F);
  std::vector<float> y(x.size());
  choose_below(std::span<const float>(x), 1.0, std::span<const float>(yes),
               std::span<const float>(no), std::span<float>(y), inline_executor());
  CHECK(y == std::vector<float>{1, -7, -7, -0.0F, -7});
  CHECK(bits(y[3]) == bits(-0.0F));
}

TEST_CASE("gates let nothing through where the operand is NaN or on a bound") {
  const std::vector<float> x = {-1.0F, -0.5F, 1.0F, 2.0F, not_a_number};
  const std::vector<float> value(x.size(), -3.0F);
  std::vector<float> y(x.size());
  pass_between(std::span<const float>(value), std::span<const float>(x), {-1, 1},
               std::span<float>(y), inline_executor());
  CHECK(y == std::vector<float>{0, -3.0F, 0, 0, 0});
  pass_beyond(std::span<const float>(value), std::span<const float>(x), {-1, 1},
              std::span<float>(y), inline_executor());
  CHECK(y == std::vector<float>{0, 0, 0, -3.0F, 0});
  CHECK(bits(y[4]) == 0);
}

TEST_CASE("a hard swish ends at its bounds, and NaN stays") {
  const std::vector<float> x = {
      -infinity, -4.0F, -3.0F,    -0.0F,        1.0F,
      3.0F,      4.0F,  infinity, not_a_number, std::nextafter(3.0F, 4.0F)};
  std::vector<float> y(x.size());
  hard_swish(std::span<const float>(x), std::span<float>(y), inline_executor());
  const std::vector<std::uint32_t> values = {
      0x7fc00000U, bits(-0.0F), bits(-0.0F),    bits(-0.0F), bits(4.0F / 6.0F),
      bits(3.0F),  bits(4.0F),  bits(infinity), 0x7fc00000U, bits(x[9])};
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(bits(y[i]) == values[i]);
  const std::vector<float> dy(1, 2.0F);
  hard_swish_gradient(std::span<const float>(dy), std::span<const float>(x), std::span<float>(y),
                      inline_executor());
  const std::vector<float> slopes = {0, 0, -1, 1, (1.0F / 3.0F + 0.5F) * 2.0F, 3, 2, 2, 2, 2};
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(bits(y[i]) == bits(slopes[i]));
}

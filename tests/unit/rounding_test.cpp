// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <potl/numeric/detail/exact_sum.hpp>
#include <potl/numeric/detail/rounding.hpp>

#include "guarded_memory.hpp"

namespace {

using namespace potl::numeric;

constexpr float infinity = std::numeric_limits<float>::infinity();

// Rnd_b from its words: the grid's numbers around |x|, the nearer one, the even one on a tie.
float defined_rounding(double x, int bits) {
  if (std::isnan(x)) return std::numeric_limits<float>::quiet_NaN();
  const double size = std::fabs(x);
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = std::clamp(exponent - 1, -126, 127);
  const double step = std::ldexp(1.0, exponent - (bits - 8 - 1));
  double chosen = size;
  if (std::isfinite(size) && size < 0x1p128) {
    const double low = std::floor(size / step) * step;
    const double up = low + step;
    const bool even = std::fmod(low / step, 2.0) == 0;
    chosen = size - low < up - size ? low : up - size < size - low ? up : even ? low : up;
  }
  if (chosen >= 0x1p128) chosen = std::numeric_limits<double>::infinity();
  return chosen == 0 ? 0.0F : static_cast<float>(x < 0 ? -chosen : chosen);
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

std::vector<double> hostile_values() {
  std::vector<double> out{0.0,
                          -0.0,
                          1e-300,
                          -1e-300,
                          0x1p-149,
                          0x1p-150,
                          0x1.8p-150,
                          0x1p128,
                          0x1p127,
                          0x1.fffffffp127,
                          1e300,
                          -1e300,
                          std::numeric_limits<double>::infinity(),
                          -std::numeric_limits<double>::infinity(),
                          std::numeric_limits<double>::quiet_NaN()};
  for (int bits = min_rounding_bits; bits <= max_rounding_bits; ++bits) {
    for (const int exponent : {-149, -140, -127, -126, -125, -1, 0, 1, 10, 127}) {
      for (const double q : {1.0, 1.5, 0.5, 2.5, 3.5, 0.25, 0.75}) {
        const double step = std::ldexp(1.0, std::max(exponent, -126) - (bits - 9));
        for (const double sign : {1.0, -1.0}) {
          const double x = sign * (std::ldexp(1.0, exponent) + (q - 1) * step);
          out.insert(out.end(), {x, std::nextafter(x, 0.0), std::nextafter(x, 2 * x)});
        }
      }
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const double x = std::ldexp(std::uniform_real_distribution<>(-1, 1)(random),
                                std::uniform_int_distribution<>(-160, 128)(random));
    out.insert(out.end(), {x, static_cast<double>(static_cast<float>(x))});
  }
  return out;
}

}  // namespace

TEST_CASE("rounding to b bits takes the nearest number of the grid, ties to even, zero positive") {
  for (int bits = min_rounding_bits; bits <= max_rounding_bits; ++bits) {
    for (const double x : hostile_values()) {
      INFO(bits << " " << std::hexfloat << x);
      REQUIRE(same_bits(round_to(x, bits), defined_rounding(x, bits)));
    }
  }
  CHECK(round_to(1 + 0x1p-24, 32) == 1.0F);
  CHECK(round_to(1 + 0x3p-24, 32) == 1.0F + 0x1p-22F);
  CHECK(round_to(1 + 0x1p-15, 23) == 1.0F);
  CHECK(round_to(0x1.fffffffp127, 26) == infinity);
  CHECK_FALSE(std::signbit(round_to(-1e-60, 32)));
}

TEST_CASE("the nearest tie lies between two neighbours of the grid, and no other tie is nearer") {
  for (int bits = min_rounding_bits; bits <= max_rounding_bits; ++bits) {
    for (const double x : hostile_values()) {
      if (!std::isfinite(x)) continue;
      INFO(bits << " " << std::hexfloat << x);
      const tie found = nearest_tie(x, bits);
      REQUIRE(found.distance == std::fabs(x - found.midpoint));
      REQUIRE(found.lower < found.upper);
      // Just beside the tie the rounding is one neighbour or the other.
      const double beside = std::fabs(found.midpoint) * 0x1p-50;
      REQUIRE(round_to(found.midpoint - beside, bits) == found.lower);
      REQUIRE(round_to(found.midpoint + beside, bits) == found.upper);
      // Rounding is constant up to the distance: there is no tie in between.
      if (found.distance <= 0x1p-45 * std::fabs(x) || std::fabs(x) >= 0x1p128) continue;
      const double inside = found.distance * (1 - 0x1p-10);
      REQUIRE(round_to(x - inside, bits) == round_to(x + inside, bits));
    }
  }
}

TEST_CASE("sums in other orders of the same depth stay within the error bound") {
  std::mt19937_64 random(2);
  for (const std::size_t size : {1U, 2U, 3U, 100U, 128U, 129U, 768U, 3072U, 20000U, 40000U}) {
    const auto terms = static_cast<std::int64_t>(size);
    for (int kind = 0; kind < 3; ++kind) {
      std::vector<float> a(size), b(size);
      for (auto* row : {&a, &b}) {
        for (float& value : *row) {
          const double z = std::normal_distribution<>()(random);
          value = static_cast<float>(kind == 0 ? z
                                     : kind == 1
                                         ? std::fabs(z)
                                         : z * std::exp(10 * std::normal_distribution<>()(random)));
        }
      }
      std::vector<std::size_t> order(size);
      std::iota(order.begin(), order.end(), 0);
      const double bound = error_bound(terms, norm(a.data(), terms), norm(b.data(), terms));
      const exact_sum exact = exact_dot({terms, a.data(), 1, b.data(), 1});
      const auto length = static_cast<std::size_t>(log64_chunk(terms));
      for (int trial = 0; trial < 4; ++trial) {
        double sum = 0;
        for (std::size_t from = 0; from < size; from += length) {
          double chunk = 0;
          for (std::size_t k = from; k < std::min<std::size_t>(size, from + length); ++k) {
            chunk = std::fma(a[order[k]], b[order[k]], chunk);
          }
          sum = from == 0 ? chunk : sum + chunk;
        }
        INFO(terms << " " << kind);
        REQUIRE(exact.is_within(sum, bound));
        std::shuffle(order.begin(), order.end(), random);
      }
    }
  }
}

TEST_CASE("the depth counts the additions that follow the first product") {
  CHECK(summation_depth(0) == 0);
  CHECK(summation_depth(1) == 0);
  CHECK(summation_depth(2) == 1);
  CHECK(summation_depth(128) == 127);
  CHECK(summation_depth(129) == 128);
  CHECK(summation_depth(768) == 132);
  CHECK(summation_depth(32768) == 382);
  CHECK(summation_depth(32769) == 383);
  CHECK(summation_depth(131072) == 766);
  CHECK(tie_window(1, 3, 4) == 0);
}

TEST_CASE("the norm is an upper bound with the same bits for every stride") {
  std::mt19937_64 random(3);
  for (const std::size_t size : {0U, 1U, 7U, 8U, 9U, 100U, 5000U}) {
    const auto terms = static_cast<std::int64_t>(size);
    std::vector<float> x(size), spread(3 * size);
    exact_sum squares;
    for (std::size_t i = 0; i < size; ++i) {
      x[i] = spread[3 * i] = static_cast<float>(std::normal_distribution<>()(random));
      squares.add_product(x[i], x[i]);
    }
    const double bound = norm(x.data(), terms);
    spread.resize(size == 0 ? 0 : 3 * size - 2);
    for (const guarded_end at : guarded_ends) {
      CHECK(bound == norm(guarded(x, at).data(), terms));
      CHECK(bound == norm(guarded(spread, at).data(), terms, 3));
    }
    const double exact = std::sqrt(squares.to_odd());
    CHECK(bound >= exact);
    CHECK(bound <= exact * (1 + (2.0 * static_cast<double>(size) + 40) * 0x1p-53));
  }
}

TEST_CASE("sums of small multiples of a power of two are known to be exact") {
  const std::vector<float> pool(4, 0.25F);
  const std::vector<float> image{1.5F, 2.25F, -3.0F, 0.0F};
  CHECK(quantum(image.data(), 4) == 0.25);
  CHECK(quantum(pool.data(), 4) == 0.25);
  const float tiny[] = {0x1p-149F, 0x1.8p-126F, 0.0F};
  CHECK(quantum(tiny, 3) == 0x1p-149);
  CHECK(exact_window({4, image.data(), 1, pool.data(), 1}) == 0);
  const std::vector<float> wide{1.0F, 0x1p-60F, 3.0F, 0.1F};
  CHECK(exact_window({4, wide.data(), 1, pool.data(), 1}) > 0);
  const std::vector<float> zeros(4, 0.0F);
  CHECK(exact_window({4, wide.data(), 1, zeros.data(), 1}) == 0);
}

TEST_CASE("an element near a tie is logged unless its sum is exact or its window too wide") {
  const float one[] = {1.0F, 0x1p-24F};
  const float ones[] = {1.0F, 1.0F};
  const dot_operands tie_of_exact{2, one, 1, ones, 1};
  CHECK(settle(1 + 0x1p-24, 1e-15, 32, tie_of_exact).value == 1.0F);
  CHECK_FALSE(settle(1 + 0x1p-24, 1e-15, 32, tie_of_exact).logged);

  const float other[] = {1.0F, 0x1.000002p-24F, 0x1p-60F};
  const float three[] = {1.0F, 1.0F, 1.0F};
  const dot_operands near{3, other, 1, three, 1};
  const double window = exact_window(near);
  CHECK(settle(1 + 0x1p-24, window, 32, near).logged);
  CHECK_FALSE(settle(1 + 0x1p-26, window, 32, near).logged);
  // Above a quarter of a step the exact value decides.
  const settled_element exact = settle(1 + 0x1p-24, 0x1p-25, 32, near);
  CHECK_FALSE(exact.logged);
  CHECK(exact.value == 1.0F + 0x1p-23F);
  CHECK(classify(1.0, 0x1.01p-26, 32) == tie_class::clear);
  CHECK(classify(1.0, std::numeric_limits<double>::infinity(), 32) == tie_class::exact);
  CHECK(classify(std::nan(""), 0, 32) == tie_class::exact);
}

TEST_CASE("exact dot products are correctly rounded, in every order") {
  std::mt19937_64 random(4);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto terms = std::uniform_int_distribution<std::size_t>(1, 12)(random);
    std::vector<float> a, b;
    for (std::size_t k = 0; k < terms; ++k) {
      const auto draw = [&] {
        return static_cast<float>(std::ldexp(std::uniform_int_distribution<>(-8, 8)(random),
                                             std::uniform_int_distribution<>(-7, 7)(random)));
      };
      a.push_back(draw());
      b.push_back(draw());
    }
    long double reference = 0;  // 40 bits: exact
    for (std::size_t k = 0; k < terms; ++k) {
      reference += static_cast<long double>(a[k]) * b[k];
    }
    for (const guarded_end at : guarded_ends) {
      const guarded x(a, at), y(b, at);
      const dot_operands operands{static_cast<std::int64_t>(terms), x.data(), 1, y.data(), 1};
      CHECK(same_bits(exact_dot(operands, 32), static_cast<float>(reference) + 0.0F));
      std::reverse(a.begin(), a.end());
      std::reverse(b.begin(), b.end());
    }
  }
}

TEST_CASE("exact sums survive cancellation, carries, and the ends of the range") {
  exact_sum sum;
  sum.add_product(0x1.fffffep127F, 0x1.fffffep127F);
  sum.add_product(0x1p-149F, -0x1p-149F);
  sum.add_product(-0x1.fffffep127F, 0x1.fffffep127F);
  CHECK(sum.to_odd() == -0x1p-298);
  CHECK(sum.sign() == -1);
  CHECK(same_bits(sum.round_to(32), 0.0F));
  sum.add(0x1p-298);
  CHECK(sum.sign() == 0);
  CHECK(sum.to_odd() == 0);
  CHECK_FALSE(std::signbit(sum.to_odd()));

  exact_sum sticky;  // a tie and a whisper above it
  sticky.add(1 + 0x1p-24);
  CHECK(sticky.round_to(32) == 1.0F);
  sticky.add(0x1p-400);
  CHECK(sticky.round_to(32) == 1.0F + 0x1p-23F);
  CHECK(sticky.is_within(1 + 0x1p-24, 0x1p-400));
  CHECK_FALSE(sticky.is_within(1 + 0x1p-24, 0x1p-401));

  exact_sum special;
  special.add_product(infinity, 2);
  CHECK(special.round_to(32) == infinity);
  special.add_product(-infinity, 1);
  CHECK(std::isnan(special.round_to(32)));
  exact_sum undefined;
  undefined.add_product(infinity, 0);
  CHECK(std::isnan(undefined.round_to(32)));
  CHECK_FALSE(undefined.is_within(0, 1));
}

// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/accumulation.hpp>

#include "catch.hpp"
#include "guarded_memory.hpp"

using namespace potl::numeric;

namespace {

template <class Real>
std::vector<Real> numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Real> out(count);
  for (Real& value : out) {
    value = std::ldexp(static_cast<Real>(static_cast<int>(random() % 20001) - 10000),
                       static_cast<int>(random() % 40) - 20);
  }
  return out;
}

std::vector<std::int64_t> indices(std::size_t count, std::int64_t below, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> out(count);
  for (auto& value : out) {
    value = static_cast<std::int64_t>(random() % static_cast<unsigned>(below));
  }
  return out;
}

template <class Real>
Real combined(accumulation op, Real y, Real x) {
  if (op == accumulation::add) return y + x;
  if (op == accumulation::multiply) return y * x;
  if (std::isnan(y) || std::isnan(x)) return std::numeric_limits<Real>::quiet_NaN();
  const bool is_max = op == accumulation::maximum;
  if (y == 0 && x == 0) return std::signbit(y) == is_max ? x : y;
  return is_max ? std::max(y, x) : std::min(y, x);
}

template <class Real>
void check(accumulation op, const accumulation_shape& s, unsigned seed) {
  const auto x = numbers<Real>(static_cast<std::size_t>(s.outer * s.count * s.inner), seed);
  const auto start = numbers<Real>(static_cast<std::size_t>(s.outer * s.rows * s.inner), seed + 1);
  const auto rows = indices(static_cast<std::size_t>(s.count), s.rows, seed + 2);
  const auto places = indices(x.size(), s.rows, seed + 3);
  for (const bool by_rows : {true, false}) {
    auto want = start;
    for (std::int64_t k = 0; k < s.count; ++k) {
      for (std::int64_t o = 0; o < s.outer; ++o) {
        for (std::int64_t i = 0; i < s.inner; ++i) {
          const auto from = static_cast<std::size_t>((o * s.count + k) * s.inner + i);
          const std::int64_t row = by_rows ? rows[static_cast<std::size_t>(k)] : places[from];
          Real& y = want[static_cast<std::size_t>((o * s.rows + row) * s.inner + i)];
          y = combined(op, y, x[from]);
        }
      }
    }
    for (const std::size_t threads : {1U, 2U, 5U}) {
      const auto workers = make_thread_pool(threads);
      for (const guarded_end at : guarded_ends) {
        const guarded from(x, at);
        const guarded index(by_rows ? rows : places, at);
        guarded y(start, at);
        if (by_rows) {
          accumulate_rows(op, s, index, from.data(), y.data(), *workers);
        } else {
          accumulate_elements(op, s, index.data(), from.data(), y.data(), *workers);
        }
        for (std::size_t i = 0; i < y.size(); ++i) {
          if (std::isnan(want[i])) {
            REQUIRE(std::isnan(y[i]));
          } else {
            REQUIRE(std::signbit(y[i]) == std::signbit(want[i]));
            REQUIRE(y[i] == want[i]);
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("values that name the same element are taken in ascending order", "[accumulation]") {
  unsigned seed = 1;
  for (const auto op :
       {accumulation::add, accumulation::multiply, accumulation::maximum, accumulation::minimum}) {
    for (const accumulation_shape& shape :
         {accumulation_shape{1, 7, 300, 1}, accumulation_shape{3, 5, 100, 17},
          accumulation_shape{1, 500, 2000, 64}, accumulation_shape{70, 3, 40, 33}}) {
      check<float>(op, shape, seed);
      check<double>(op, shape, seed);
      seed += 4;
    }
  }
}

TEST_CASE("a maximum and a minimum keep NaN and order zeros by sign", "[accumulation]") {
  const std::vector<std::int64_t> index{0, 0, 1, 1, 2};
  const float nan = std::nanf("3");
  for (const auto op : {accumulation::maximum, accumulation::minimum}) {
    std::vector<float> y{0.0F, -0.0F, 1.0F};
    const std::vector<float> x{-0.0F, 0.0F, 0.0F, -0.0F, nan};
    accumulate_rows(op, {1, 3, 5, 1}, index, x.data(), y.data(), inline_executor());
    const bool is_max = op == accumulation::maximum;
    CHECK(std::signbit(y[0]) == !is_max);
    CHECK(std::signbit(y[1]) == !is_max);
    CHECK(std::bit_cast<std::uint32_t>(y[2]) == 0x7fc00000U);
  }
}

TEST_CASE("an index out of range is refused before anything changes", "[accumulation]") {
  const std::vector<float> x(4, 1.0F);
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{2}}) {
    const std::vector<std::int64_t> index{0, 1, 0, wrong};
    std::vector<float> y(2, 0.0F);
    const accumulation_shape shape{1, 2, 4, 1};
    CHECK_THROWS_AS(
        accumulate_rows(accumulation::add, shape, index, x.data(), y.data(), inline_executor()),
        potl::exception);
    CHECK_THROWS_AS(accumulate_elements(accumulation::add, shape, index.data(), x.data(), y.data(),
                                        inline_executor()),
                    potl::exception);
    CHECK(y == std::vector<float>(2, 0.0F));
  }
}

// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/maxima.hpp>

#include "catch.hpp"
#include "guarded_memory.hpp"

using namespace potl::numeric;

namespace {

max_windows sample() {
  max_windows of;
  of.planes = 70;
  of.height = 5;
  of.width = 7;
  of.rows = {{0, 2, 1}, {1, 4, 1}, {4, 5, 1}};
  of.columns = {{0, 1, 1}, {0, 4, 2}, {1, 6, 2}, {2, 7, 3}, {5, 7, 1}};
  return of;
}

// Numbers among which are equal ones, both zeros, infinities and NaNs of many payloads.
float hostile(std::uint32_t random) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  switch (random % 8) {
    case 0: return std::bit_cast<float>(0x7F800001U | (random & 0x807FFF00U));
    case 1: return -0.0F;
    case 2: return 0.0F;
    case 3: return -infinity;
    case 4: return infinity;
    default: return static_cast<float>(static_cast<int>(random >> 8 & 7) - 4);
  }
}

std::vector<std::uint32_t> bits(std::span<const float> values) {
  std::vector<std::uint32_t> out;
  for (const float value : values) out.push_back(std::bit_cast<std::uint32_t>(value));
  return out;
}

}  // namespace

TEST_CASE("the first of the largest values of a window is found, or its last NaN", "[maxima]") {
  const max_windows of = sample();
  std::mt19937 random(3);
  std::vector<float> x(static_cast<std::size_t>(of.planes * of.height * of.width)), want;
  for (float& value : x) value = hostile(static_cast<std::uint32_t>(random()));
  std::vector<std::int64_t> where;
  for (std::int64_t p = 0; p < of.planes; ++p) {
    for (const max_window& row : of.rows) {
      for (const max_window& column : of.columns) {
        float best = -std::numeric_limits<float>::infinity();
        std::int64_t place = row.begin * of.width + column.begin;
        for (std::int64_t h = row.begin; h < row.end; h += row.step) {
          for (std::int64_t w = column.begin; w < column.end; w += column.step) {
            const float value = x[static_cast<std::size_t>((p * of.height + h) * of.width + w)];
            if (!(value > best) && !std::isnan(value)) continue;
            best = value;
            place = h * of.width + w;
          }
        }
        want.push_back(best);
        where.push_back(place);
      }
    }
  }
  for (const std::size_t threads : {1U, 3U}) {
    const auto workers = make_thread_pool(threads);
    for (const guarded_end at : guarded_ends) {
      const guarded<float> from(x, at);
      guarded<float> y(want.size(), at);
      guarded<std::int64_t> places(want.size(), at);
      maxima(of, from.data(), y.data(), places.data(), *workers);
      REQUIRE(bits({y.data(), want.size()}) == bits(want));
      REQUIRE(std::ranges::equal(places, where));
    }
  }
}

TEST_CASE("a window of a maximum that is empty or outside of the input is refused", "[maxima]") {
  const max_window wrong =
      GENERATE(max_window{2, 2, 1}, max_window{-1, 2, 1}, max_window{3, 8, 1}, max_window{0, 2, 0});
  max_windows of = sample();
  of.columns[1] = wrong;
  std::vector<float> x(1 << 16), y(1 << 16);
  std::vector<std::int64_t> places(1 << 16);
  CHECK_THROWS_AS(maxima(of, x.data(), y.data(), places.data(), inline_executor()),
                  potl::exception);
}

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/resampling.hpp>

#include "catch.hpp"
#include "guarded_memory.hpp"

using namespace potl::numeric;

namespace {

std::vector<tap_table> tables() {
  std::vector<tap_table> out;
  for (const std::int64_t inputs : {1, 2, 5, 16}) {
    for (const std::int64_t outputs : {1, 3, 7, 32}) {
      for (const bool align : {false, true}) {
        const resize of{inputs, outputs, align, {}};
        out.push_back(linear_taps(of));
        out.push_back(cubic_taps(of));
        out.push_back(smooth_linear_taps(of));
        out.push_back(smooth_cubic_taps(of));
        out.push_back(nearest_taps(of, align));
      }
    }
  }
  out.push_back(padding_taps(5, 4, 3, true));
  out.push_back(padding_taps(5, 9, -2, false));
  return out;
}

}  // namespace

TEST_CASE("the taps of every output lie in the input and their weights sum to 1", "[resampling]") {
  for (const tap_table& table : tables()) {
    for (std::size_t j = 0; j + 1 < table.first.size(); ++j) {
      double sum = 0;
      for (std::int64_t k = table.first[j]; k < table.first[j + 1]; ++k) {
        const auto tap = static_cast<std::size_t>(k);
        REQUIRE(table.positions[tap] >= 0);
        REQUIRE(table.positions[tap] < table.inputs);
        sum += table.weights[tap];
      }
      CHECK(std::abs(sum - 1) < 1e-12);
    }
  }
}

TEST_CASE("a scale near 0 puts every later output at the last input", "[resampling]") {
  for (const double scale : {1e-20, 1e-300, 5e-324}) {
    const resize of{5, 3, false, scale};
    for (const bool exact : {false, true}) {
      const std::int64_t first = exact ? 4 : 0;
      CHECK(nearest_taps(of, exact).positions == std::vector<std::int64_t>{first, 4, 4});
    }
    CHECK(linear_taps(of).positions == std::vector<std::int64_t>(6, 4));
    CHECK(cubic_taps(of).positions == std::vector<std::int64_t>(12, 4));
    for (const tap_table& table : {smooth_linear_taps(of), smooth_cubic_taps(of)}) {
      REQUIRE(table.outputs() == 3);
      for (const std::int64_t position : table.positions) {
        CHECK((position >= 0 && position < 5));
      }
    }
  }
}

TEST_CASE("the transposed table has the same taps, by input", "[resampling]") {
  for (const tap_table& table : tables()) {
    const tap_table other = transposed(table);
    REQUIRE(other.inputs == table.outputs());
    REQUIRE(other.outputs() == table.inputs);
    std::vector<double> dense(static_cast<std::size_t>(table.inputs * table.outputs()), 0);
    const auto fill = [&](const tap_table& from, bool swapped, double sign) {
      for (std::int64_t j = 0; j < from.outputs(); ++j) {
        for (std::int64_t k = from.first[static_cast<std::size_t>(j)];
             k < from.first[static_cast<std::size_t>(j) + 1]; ++k) {
          const std::int64_t i = from.positions[static_cast<std::size_t>(k)];
          const std::int64_t place = swapped ? j * table.outputs() + i : i * table.outputs() + j;
          dense[static_cast<std::size_t>(place)] +=
              sign * from.weights[static_cast<std::size_t>(k)];
        }
      }
    };
    fill(table, false, 1);
    fill(other, true, -1);
    for (const double value : dense)
      CHECK(std::abs(value) < 1e-15);  // border taps of one input come in another order
  }
}

TEST_CASE("resampling is products and sums in the order of the taps", "[resampling]") {
  std::mt19937 random(7);
  for (const tap_table& table : tables()) {
    for (const std::int64_t inner : {1, 19}) {
      constexpr std::int64_t outer = 3;
      std::vector<float> x(static_cast<std::size_t>(outer * table.inputs * inner));
      for (float& value : x) value = static_cast<float>(static_cast<int>(random() % 2000)) / 7 - 99;
      std::vector<float> want;
      for (std::int64_t o = 0; o < outer; ++o) {
        for (std::int64_t j = 0; j < table.outputs(); ++j) {
          for (std::int64_t i = 0; i < inner; ++i) {
            float y = 0;
            const std::int64_t first = table.first[static_cast<std::size_t>(j)];
            for (std::int64_t k = first; k < table.first[static_cast<std::size_t>(j) + 1]; ++k) {
              const auto tap = static_cast<std::size_t>(k);
              const std::int64_t place = (o * table.inputs + table.positions[tap]) * inner + i;
              const float product =
                  static_cast<float>(table.weights[tap]) * x[static_cast<std::size_t>(place)];
              y = k == first ? product : y + product;
            }
            want.push_back(y);
          }
        }
      }
      for (const std::size_t threads : {1U, 3U}) {
        for (const guarded_end at : guarded_ends) {
          const guarded from(x, at);
          guarded<float> y(want.size(), at);
          resample(table, outer, inner, from.data(), y.data(), *make_thread_pool(threads));
          REQUIRE(std::ranges::equal(y, want));
        }
      }
    }
  }
}

TEST_CASE("a border that a tensor cannot have is refused", "[resampling]") {
  CHECK_THROWS_AS(padding_taps(3, 3, 0, true), potl::exception);
  CHECK_THROWS_AS(padding_taps(3, -2, -2, false), potl::exception);
  CHECK_THROWS_AS(padding_taps(0, 1, 1, false), potl::exception);
}

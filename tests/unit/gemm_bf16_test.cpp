// SPDX-License-Identifier: Apache-2.0
// Products in xint16 of numbers that bfloat16 holds, which faster tiles compute where there are
// any: the largest integers that they take, and all depths around a chunk.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <potl/numeric/gemm.hpp>

#include "catch.hpp"
#include "gemm_cases.hpp"
#include "gemm_definition.hpp"
#include "numeric_levels.hpp"

using namespace potl::numeric;

namespace {

constexpr float largest = 255.0F / 128;  // of an exponent, and its integer is 255 * 128

/// Both operands of columns of k, which lie one after the other or across.
struct operands {
  std::int64_t rows, columns, depth;
  bool transposed;
  std::vector<float> a, b;

  operands(std::int64_t m, std::int64_t n, std::int64_t k, bool across)
      : rows(m),
        columns(n),
        depth(k),
        transposed(across),
        a(static_cast<std::size_t>(m * k)),
        b(static_cast<std::size_t>(n * k)) {}

  float& at(std::vector<float>& of, std::int64_t line, std::int64_t k) const {
    const auto lines = static_cast<std::int64_t>(of.size()) / depth;
    return of[static_cast<std::size_t>(transposed ? k * lines + line : line * depth + k)];
  }
  matrix<const float> left() const {
    return transposed ? row_major<const float>(a.data(), depth, rows).transposed()
                      : row_major<const float>(a.data(), rows, depth);
  }
  matrix<const float> right() const {
    return transposed ? row_major<const float>(b.data(), depth, columns)
                      : row_major<const float>(b.data(), columns, depth).transposed();
  }
};

void require_defined(const operands& of) {
  std::vector<float> wanted;
  for (std::int64_t i = 0; i < of.rows; ++i)
    for (std::int64_t j = 0; j < of.columns; ++j) {
      std::vector<float> row, column;
      for (std::int64_t k = 0; k < of.depth; ++k) {
        row.push_back(of.left()(i, k));
        column.push_back(of.right()(k, j));
      }
      wanted.push_back(gemm_definition::scaled_integers(row, column, 16));
    }
  const auto threads = make_thread_pool(2);
  potl::test::at_each_level([&](isa level) {
    std::vector<float> c(wanted.size());
    gemm(arithmetic::xint16, of.left(), of.right(), row_major(c.data(), of.rows, of.columns),
         *threads);
    INFO(to_string(level) << ", " << of.depth << " terms, transposed: " << of.transposed);
    REQUIRE(c == wanted);
  });
}

TEST_CASE("sums of the largest integers of bfloat16 numbers are exact", "[gemm]") {
  const bool transposed = GENERATE(false, true);
  const std::int64_t depth = GENERATE(1, 3, 255, 256, 257, 1023);
  // Signs of a row's and a column's elements: the same everywhere, or in turn.
  operands of(8, 40, depth, transposed);
  const auto sign = [](std::int64_t line, std::int64_t k) {
    return line % 4 == 0 || (line % 4 == 1 && k % 2 == 0) ? 1.0F : -1.0F;
  };
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t i = 0; i < of.rows; ++i) of.at(of.a, i, k) = sign(i, k) * largest;
    for (std::int64_t j = 0; j < of.columns; ++j) of.at(of.b, j, k) = sign(j, k) * largest;
  }
  require_defined(of);
}

TEST_CASE("infinite rows of any depth leave no number", "[gemm]") {
  operands of(8, 40, GENERATE(4, 256), GENERATE(false, true));
  for (float& x : of.a) x = -HUGE_VALF;
  for (float& x : of.b) x = largest;
  const auto threads = make_thread_pool(1);
  potl::test::at_each_level([&](isa) {
    std::vector<float> c(static_cast<std::size_t>(of.rows * of.columns));
    gemm(arithmetic::xint16, of.left(), of.right(), row_major(c.data(), of.rows, of.columns),
         *threads);
    REQUIRE(std::all_of(c.begin(), c.end(), [](float x) { return std::isnan(x); }));
  });
}

TEST_CASE("bfloat16 numbers of all exponents have the products of xint16", "[gemm]") {
  const bool transposed = GENERATE(false, true);
  gemm_cases::source from(transposed ? 1 : 2);
  for (const std::int64_t depth : {2, 17, 64, 300}) {
    operands of(15, 70, depth, transposed);
    const auto draw = [&] {
      const double fraction = std::floor(from.unit() * 256) / 128;
      return static_cast<float>(
          std::ldexp((from.unit() < 0.5 ? -1 : 1) * fraction, static_cast<int>(from.unit() * -20)));
    };
    for (float& x : of.a) x = draw();
    for (float& x : of.b) x = draw();
    require_defined(of);
    // One number between those of bfloat16, which is larger than the tiles take.
    of.a.back() = 0x1.fffffep0F;
    require_defined(of);
    of.b.front() = std::nanf("");
    of.b.back() = HUGE_VALF;
    const auto threads = make_thread_pool(1);
    potl::test::at_each_level([&](isa) {
      std::vector<float> c(static_cast<std::size_t>(of.rows * of.columns));
      gemm(arithmetic::xint16, of.left(), of.right(), row_major(c.data(), of.rows, of.columns),
           *threads);
      REQUIRE(std::isnan(c.front()));
      REQUIRE(std::isnan(c.back()));
      REQUIRE_FALSE(std::isnan(c[1]));
    });
  }
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Products large enough to be cut in every way (blocked.hpp): few rows and many columns, many rows
// and few columns, many k for a small C, several chunks of everything; operands that lie as they
// are or transposed, one thread and several.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <potl/numeric/gemm.hpp>

#include "catch.hpp"
#include "gemm_cases.hpp"
#include "gemm_definition.hpp"
#include "numeric_levels.hpp"

using namespace potl::numeric;

namespace {

constexpr gemm_cases::shape shapes[] = {{40, 400, 530}, {16, 40, 4200}, {30, 40, 4200},
                                        {60, 200, 520}, {1500, 40, 70}, {100, 70, 600},
                                        {450, 300, 33}, {58, 1300, 9}};

struct operand {
  std::vector<float> values;
  matrix<const float> view;

  /// The same in a copy of `values`.
  matrix<const float> in(const guarded<float>& copy) const {
    matrix<const float> moved = view;
    moved.data = copy.data();
    return moved;
  }
};

operand drawn(std::int64_t rows, std::int64_t columns, bool transposed, gemm_cases::source& from) {
  operand out;
  out.values.resize(static_cast<std::size_t>(rows * columns));
  for (float& x : out.values) x = gemm_cases::element(gemm_cases::kind::ordinary, 0, from);
  out.view = transposed ? row_major<const float>(out.values.data(), columns, rows).transposed()
                        : row_major<const float>(out.values.data(), rows, columns);
  return out;
}

std::vector<float> line(const matrix<const float>& m, std::int64_t i) {
  std::vector<float> out;
  for (std::int64_t k = 0; k < m.columns; ++k) out.push_back(m(i, k));
  return out;
}

// Runs the product at every level with 1, 2 and 3 threads, and hands each result to check(c). Each
// number of threads has either end at a forbidden page, at one level or another.
template <class Check>
void at_each_cut(arithmetic mode, const operand& a, const operand& b, const Check& check) {
  const std::unique_ptr<executor> pools[] = {make_thread_pool(1), make_thread_pool(2),
                                             make_thread_pool(3)};
  std::size_t runs = 0;
  potl::test::at_each_level([&](isa level) {
    for (const auto& pool : pools) {
      INFO(to_string(level) << " with " << pool->concurrency() << " threads: " << a.view.rows
                            << " x " << b.view.columns << " x " << a.view.columns
                            << ", strides of columns " << a.view.column_stride << " and "
                            << b.view.column_stride);
      const guarded_end at = guarded_ends[runs++ % 2];
      const guarded left(a.values, at), right(b.values, at);
      guarded<float> c(static_cast<std::size_t>(a.view.rows * b.view.columns), at);
      gemm(mode, a.in(left), b.in(right), row_major(c.data(), a.view.rows, b.view.columns), *pool);
      check(std::span<const float>(c));
    }
  });
}

template <class Check>
void with_each_product(const Check& check) {
  gemm_cases::source from(20);
  for (const auto& [rows, columns, depth] : shapes) {
    for (const bool first : {false, true}) {
      for (const bool second : {false, true}) {
        check(drawn(rows, depth, first, from), drawn(depth, columns, second, from));
      }
    }
  }
}

}  // namespace

TEST_CASE("ord32 is its definition however a product is cut", "[gemm]") {
  with_each_product([](const operand& a, const operand& b) {
    std::vector<float> wanted;
    std::vector<std::vector<float>> columns;
    for (std::int64_t j = 0; j < b.view.columns; ++j) {
      columns.push_back(line(b.view.transposed(), j));
    }
    for (std::int64_t i = 0; i < a.view.rows; ++i) {
      const std::vector<float> row = line(a.view, i);
      for (const auto& column : columns) wanted.push_back(gemm_definition::ordered(row, column));
    }
    at_each_cut(arithmetic::ord32, a, b,
                [&](std::span<const float> c) { REQUIRE(potl::test::same_bits(c, wanted)); });
  });
}

TEST_CASE("ord32 is its definition where C is written past the caches", "[gemm]") {
  constexpr std::int64_t rows = 70000, columns = 128, depth = 2;
  gemm_cases::source from(22);
  const operand a = drawn(rows, depth, false, from), b = drawn(depth, columns, true, from);
  std::vector<float> memory(static_cast<std::size_t>(rows * columns + 16)), wanted;
  float* c = memory.data();
  while (reinterpret_cast<std::uintptr_t>(c) % 64 != 0) ++c;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    const std::int64_t row = i / columns, column = i % columns;
    const float sum = a.view(row, 0) * b.view(0, column);
    wanted.push_back(std::fma(a.view(row, 1), b.view(1, column), sum));
  }
  const auto pool = make_thread_pool(2);
  potl::test::at_each_level([&](isa level) {
    INFO(to_string(level));
    std::fill(memory.begin(), memory.end(), -77.0F);
    gemm(arithmetic::ord32, a.view, b.view, row_major(c, rows, columns), *pool);
    CHECK(std::equal(wanted.begin(), wanted.end(), c));
    CHECK(std::count(memory.begin(), memory.end(), -77.0F) == 16);
  });
}

TEST_CASE("rounded modes are their definitions however a product is cut", "[gemm]") {
  const auto check = [](arithmetic mode, const auto& define) {
    with_each_product([&](const operand& a, const operand& b) {
      std::vector<float> first;
      at_each_cut(mode, a, b, [&](std::span<const float> c) {
        if (first.empty()) first.assign(c.begin(), c.end());
        REQUIRE(potl::test::same_bits(c, first));
      });
      gemm_cases::source from(21);
      for (int at = 0; at < 20; ++at) {
        const std::int64_t i = from.below(a.view.rows), j = from.below(b.view.columns);
        const float wanted = define(line(a.view, i), line(b.view.transposed(), j));
        REQUIRE(first[static_cast<std::size_t>(i * b.view.columns + j)] == wanted);
      }
    });
  };
  check(arithmetic::cr32,
        [](const auto& a, const auto& b) { return gemm_definition::rounded(a, b, 32); });
  check(arithmetic::xint24,
        [](const auto& a, const auto& b) { return gemm_definition::scaled_integers(a, b, 24); });
}

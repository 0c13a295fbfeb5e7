// SPDX-License-Identifier: Apache-2.0
// Projections are sums of products, at every level, for every layout, and read nothing else.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <potl/numeric/detail/projection.hpp>

#include "catch.hpp"
#include "numeric_levels.hpp"

using namespace potl;
using numeric::matrix;

namespace {

enum class layout { rows, columns, gaps };

template <class Real>
void check_all(std::int64_t rows, std::int64_t columns, int vectors, layout how, bool both,
               guarded_end at, const numeric::executor& threads) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rows * 1000 + columns));
  std::normal_distribution<double> normal;
  const auto draw = [&](std::int64_t count) {
    std::vector<double> out(static_cast<std::size_t>(count));
    for (double& one : out) one = normal(random);
    return out;
  };
  std::vector<Real> values;
  const std::int64_t step = how == layout::gaps ? 3 : 1;
  for (const double one : draw(rows * columns * step)) values.push_back(static_cast<Real>(one));
  if (how == layout::gaps && !values.empty()) values.resize(values.size() - 2);
  const guarded<Real> memory(values, at);
  const matrix<const Real> m =
      how == layout::columns
          ? matrix<const Real>{memory.data(), rows, columns, 1, rows}
          : matrix<const Real>{memory.data(), rows, columns, columns * step, step};
  const guarded<double> x(draw(vectors * columns), at), weights(draw(columns), at);
  guarded<double> out(static_cast<std::size_t>(vectors * rows), at);
  guarded<double> squares(static_cast<std::size_t>(rows), at), sizes(squares.size(), at);
  numeric::project(m,
                   {x.data(), out.data(), vectors, both ? squares.data() : nullptr, weights.data(),
                    sizes.data()},
                   threads);
  double worst = 0;
  const auto compare = [&](double got, double wanted, double terms) {
    const double off = std::fabs(got - wanted) / (terms + 1);
    worst = off <= worst ? worst : off;  // NaN stays
  };
  for (std::int64_t i = 0; i < rows; ++i) {
    double square = 0, size = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const double one = static_cast<double>(m(i, j));
      square += one * one;
      size += std::fabs(one) * weights[static_cast<std::size_t>(j)];
    }
    if (both) compare(squares[static_cast<std::size_t>(i)], square, square);
    compare(sizes[static_cast<std::size_t>(i)], size, square);
    for (int v = 0; v < vectors; ++v) {
      double sum = 0;
      for (std::int64_t j = 0; j < columns; ++j) {
        sum += static_cast<double>(m(i, j)) * x[static_cast<std::size_t>(v * columns + j)];
      }
      compare(out[static_cast<std::size_t>(v * rows + i)], sum, square);
    }
  }
  INFO(rows << " x " << columns << ", " << vectors << " vectors");
  CHECK(worst < 1e-13);
}

}  // namespace

TEST_CASE("projections are sums of products at every level, layout and size", "[projection]") {
  const auto pool = numeric::make_thread_pool(3);
  const auto how = GENERATE(layout::rows, layout::columns, layout::gaps);
  test::at_each_level_and_end([&](numeric::isa, guarded_end at) {
    for (const std::int64_t rows : {1, 3, 4, 17, 130}) {
      for (const std::int64_t columns : {0, 1, 7, 16, 65, 140}) {
        for (const int vectors : {0, 1, 2, 3, 5, 8}) {
          const bool both = vectors % 2 == 0;
          check_all<float>(rows, columns, vectors, how, both, at, *pool);
          check_all<double>(rows, columns, vectors, how, both, at, numeric::inline_executor());
        }
      }
    }
    check_all<float>(3000, 90, 5, how, true, at, *pool);
  });
}

TEST_CASE("no infinity of a matrix is lost in a projection", "[projection]") {
  std::vector<float> values(35, 1);
  values[32] = std::numeric_limits<float>::infinity();
  const std::vector<double> x(7, 0.0);
  test::at_each_level([&](numeric::isa) {
    std::vector<double> out(5), squares(5);
    numeric::project(numeric::row_major<const float>(values.data(), 5, 7),
                     {x.data(), out.data(), 1, squares.data(), nullptr, nullptr},
                     numeric::inline_executor());
    CHECK(std::isnan(out[4]));
    CHECK(std::isinf(squares[4]));
    CHECK(out[3] == 0);
  });
}

TEST_CASE("sums of shifts have every term once, at every level and size", "[projection]") {
  // What a kernel of 2 x 3 taps sees of rows with room on their right.
  test::at_each_level_and_end([&](numeric::isa, guarded_end at) {
    for (const std::int64_t rows : {1, 5}) {
      for (const std::int64_t columns : {0, 1, 7, 8, 31, 32, 45, 130}) {
        const std::int64_t stride = columns + 2;
        const std::vector<std::int64_t> offsets{0, 1, 2, stride, stride + 1, stride + 2};
        const std::vector<double> factors{1, 10, 100, 1000, 10000, 100000};
        std::vector<double> elements(static_cast<std::size_t>((rows + 1) * stride));
        for (std::size_t i = 0; i < elements.size(); ++i) {
          elements[i] = static_cast<double>(i * i % 13);
        }
        const guarded<double> from(elements, at);
        const std::int64_t gap = 3;  // in the sums' rows
        const std::vector<double> before(
            static_cast<std::size_t>((rows - 1) * (columns + gap) + columns), 0.5);
        guarded<double> sums(before, at);
        numeric::add_shifted({from.data(), rows, columns, stride, 1}, offsets, factors.data(),
                             {sums.data(), rows, columns, columns + gap, 1});
        bool right = true;
        for (std::int64_t i = 0; i < std::ssize(before); ++i) {
          const std::int64_t row = i / (columns + gap), column = i % (columns + gap);
          double wanted = 0.5;
          for (std::size_t t = 0; column < columns && t < offsets.size(); ++t) {
            const std::int64_t place = row * stride + column + offsets[t];
            wanted += factors[t] * elements[static_cast<std::size_t>(place)];
          }
          right = right && sums[static_cast<std::size_t>(i)] == wanted;
        }
        INFO(rows << " x " << columns);
        CHECK(right);
      }
    }
  });
}

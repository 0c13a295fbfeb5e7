// SPDX-License-Identifier: Apache-2.0
// A matrix product under log64 by its definition, in a permuted order of summation.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <potl/numeric/detail/exact_sum.hpp>
#include <potl/numeric/detail/matrix.hpp>
#include <potl/numeric/detail/rounding.hpp>

namespace simulation {

using namespace potl::numeric;

struct product {
  std::int64_t rows, terms, columns;
  std::vector<float> a, b;

  matrix<const float> left() const { return row_major(a.data(), rows, terms); }
  matrix<const float> right() const { return row_major(b.data(), terms, columns); }
};

inline std::vector<near_tie> multiply(const product& p, int bits, std::uint64_t order,
                                      std::vector<float>& c) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(p.terms));
  std::iota(index.begin(), index.end(), 0);
  std::mt19937_64 random(order);
  if (order != 0) std::shuffle(index.begin(), index.end(), random);
  const matrix<const float> a = p.left(), b = p.right();
  const std::int64_t length = log64_chunk(p.terms);
  std::vector<near_tie> out;
  c.assign(static_cast<std::size_t>(p.rows * p.columns), 0);
  for (std::int64_t i = 0; i < p.rows; ++i) {
    const double norm_a = norm(&a(i, 0), p.terms);
    for (std::int64_t j = 0; j < p.columns; ++j) {
      double sum = 0, chunk = 0;
      for (std::size_t k = 0; k < index.size(); ++k) {
        chunk = std::fma(a(i, index[k]), b(index[k], j), chunk);
        if ((k + 1) % static_cast<std::size_t>(length) == 0 || k + 1 == index.size()) {
          sum = k < static_cast<std::size_t>(length) ? chunk : sum + chunk;
          chunk = 0;
        }
      }
      const double window = tie_window(p.terms, norm_a, norm(&b(0, j), p.terms, p.columns));
      const settled_element element =
          settle(sum, window, bits, {p.terms, &a(i, 0), 1, &b(0, j), p.columns});
      const auto at = static_cast<std::uint64_t>(i * p.columns + j);
      c[at] = element.value;
      if (element.logged) out.push_back({at, sum, window});
    }
  }
  return out;
}

/// kind 0: normal; 1: many exact ties (small integers and halves); 2: heavy cancellation.
inline product draw(int kind, std::int64_t rows, std::int64_t terms, std::int64_t columns,
                    std::mt19937_64& random) {
  product out{rows, terms, columns, {}, {}};
  const auto fill = [&](std::vector<float>& to, std::int64_t count, bool left) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double z = std::normal_distribution<>()(random);
      const int n = std::uniform_int_distribution<>(-3, 3)(random);
      const double big = i % 2 == 0 ? 1e6 : -1e6;
      to.push_back(static_cast<float>(kind == 1   ? (left ? n * 0x1p-20 + n : n * 0.5)
                                      : kind == 2 ? (left ? big + z : 1 + z * 1e-6)
                                                  : z));
    }
  };
  fill(out.a, rows * terms, true);
  fill(out.b, terms * columns, false);
  return out;
}

/// Elements near ties, spread over the window: columns are moved so that row 0 lies beside a tie.
inline product near_ties(std::int64_t columns, int bits, std::mt19937_64& random, double width) {
  product p = draw(0, 1, 300, columns, random);
  p.a[0] = 1;
  p.a[1] = 0x1p-22F;
  for (std::int64_t j = 0; j < columns; ++j) {
    auto at = [&](std::int64_t k) -> float& {
      return p.b[static_cast<std::size_t>(k * columns + j)];
    };
    for (int k = 0; k < 2; ++k) at(k) = 0;
    const double target = std::uniform_real_distribution<>(-width, width)(random) *
                          tie_window(300, norm(p.a.data(), 300), norm(&at(0), 300, columns));
    for (int k = 0; k < 2; ++k) {
      const exact_sum sum = exact_dot({300, p.a.data(), 1, &at(0), columns});
      exact_sum off = sum;
      off.add(-sum.nearest_tie(bits).midpoint);
      at(k) = static_cast<float>((target - off.to_odd()) / p.a[static_cast<std::size_t>(k)]);
    }
  }
  return p;
}

}  // namespace simulation

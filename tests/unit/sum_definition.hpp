// SPDX-License-Identifier: Apache-2.0
// The sum of docs/reference/reduction.md in plain lines, for tests of everything that adds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace potl::test {

template <class Real>
Real defined_sum(const std::vector<Real>& terms) {
  if (terms.size() > 4096) {
    std::vector<Real> chunks;
    for (std::size_t first = 0; first < terms.size(); first += 4096) {
      const std::size_t last = std::min(terms.size(), first + 4096);
      chunks.push_back(defined_sum(std::vector<Real>(terms.begin() + static_cast<long>(first),
                                                     terms.begin() + static_cast<long>(last))));
    }
    return defined_sum(chunks);
  }
  std::vector<Real> partial(32, Real(0));
  for (std::size_t i = 0; i < terms.size(); ++i) partial[i % 32] += terms[i];
  for (std::size_t half = 16; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) partial[j] += partial[j + half];
  return partial[0] == partial[0] ? partial[0] : std::numeric_limits<Real>::quiet_NaN();
}

/// Of n - 2 ones, M and -M: how many ones the sum counts, from the shape of the tree alone.
/// A one is lost when it is added to a partial sum that holds M (or -M) and not the other.
inline std::size_t surviving_ones(std::size_t n, std::size_t i, std::size_t j) {
  struct node {
    std::size_t ones = 0;
    bool plus = false, minus = false;
  };
  const auto join = [](node a, node b) {
    node c{a.ones + b.ones, a.plus != b.plus, a.minus != b.minus};
    const bool holds = a.plus != a.minus || b.plus != b.minus;
    if (holds) c.ones = 0;
    if ((a.plus || b.plus) && (a.minus || b.minus)) {
      // They cancel: what neither of the two sides had lost is left, which is nothing.
      c.plus = c.minus = false;
    }
    return c;
  };
  std::vector<node> level(n);
  for (std::size_t k = 0; k < n; ++k) level[k] = {k != i && k != j ? 1U : 0U, k == i, k == j};
  const auto chunk = [&](const std::vector<node>& terms) {
    std::vector<node> partial(32);
    for (std::size_t k = 0; k < terms.size(); ++k)
      partial[k % 32] = join(partial[k % 32], terms[k]);
    for (std::size_t half = 16; half > 0; half /= 2)
      for (std::size_t k = 0; k < half; ++k) partial[k] = join(partial[k], partial[k + half]);
    return partial[0];
  };
  while (level.size() > 1 || n == 1) {
    std::vector<node> next;
    for (std::size_t first = 0; first < level.size(); first += 4096)
      next.push_back(
          chunk({level.begin() + static_cast<long>(first),
                 level.begin() + static_cast<long>(std::min(level.size(), first + 4096))}));
    level = next;
    if (n == 1) break;
  }
  return level[0].ones;
}

}  // namespace potl::test

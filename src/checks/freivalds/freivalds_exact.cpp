// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <vector>

#include <potl/crypto/challenge.hpp>

#include "freivalds_bounds.hpp"

namespace potl::checks {
namespace {

using numeric::matrix;

constexpr std::uint64_t prime = (std::uint64_t{1} << 61) - 1;

__extension__ using wide = unsigned __int128;

std::uint64_t reduced(wide value) noexcept {
  const auto once =
      static_cast<std::uint64_t>(value & prime) + static_cast<std::uint64_t>(value >> 61);
  return once >= prime ? once - prime : once;
}

/// The residue of a whole number of less than 2^61.
std::uint64_t residue(std::int64_t value) noexcept {
  return value < 0 ? prime - static_cast<std::uint64_t>(-value) : static_cast<std::uint64_t>(value);
}

template <class Element>
std::uint64_t row_times(const matrix<const Element>& m, std::int64_t row,
                        const std::vector<std::uint64_t>& x) {
  std::uint64_t sum = 0;
  for (std::int64_t j = 0; j < m.columns; ++j) {
    sum = reduced(wide{residue(m(row, j))} * x[static_cast<std::size_t>(j)] + sum);
  }
  return sum;
}

template <class Element>
std::uint64_t largest(const matrix<const Element>& m) {
  std::uint64_t most = 0;
  for (std::int64_t i = 0; i < m.rows; ++i) {
    for (std::int64_t j = 0; j < m.columns; ++j) {
      const std::int64_t one = m(i, j);
      most = std::max(most, one < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(one)
                                    : static_cast<std::uint64_t>(one));
    }
  }
  return most;
}

}  // namespace

bool freivalds_exact(matrix<const std::int32_t> a, matrix<const std::int32_t> b,
                     matrix<const std::int64_t> c, int vectors, const std::optional<digest>& key) {
  if (a.columns != b.rows || a.rows != c.rows || b.columns != c.columns) {
    throw exception({errc::usage, "the shapes of A, B and C do not fit",
                     "they are rows x depth, depth x columns and rows x columns"});
  }
  if (vectors < 1 || vectors > 64) {
    throw exception({errc::usage, "Freivalds' check takes 1 to 64 probes", ""});
  }
  constexpr std::uint64_t most = std::uint64_t{1} << 60;
  const wide bound = wide{largest(a)} * largest(b) * static_cast<std::uint64_t>(a.columns);
  if (bound > most) {
    throw exception({errc::usage, "products of these operands could exceed 2^60",
                     "check parts of the depth by themselves"});
  }
  // Without this a result that is off by the modulus would pass.
  if (largest(c) > bound) return false;
  keyed_stream random(key ? *key : fresh_nonce());
  std::vector<std::uint64_t> r(static_cast<std::size_t>(b.columns)),
      right(static_cast<std::size_t>(b.rows));
  for (int v = 0; v < vectors; ++v) {
    for (auto& one : r) one = random.below(prime);
    for (std::int64_t k = 0; k < b.rows; ++k)
      right[static_cast<std::size_t>(k)] = row_times(b, k, r);
    for (std::int64_t i = 0; i < c.rows; ++i) {
      if (row_times(a, i, right) != row_times(c, i, r)) return false;
    }
  }
  return true;
}

}  // namespace potl::checks

// SPDX-License-Identifier: Apache-2.0
#include "numeric/spectrum/vectors.hpp"

#include <algorithm>
#include <array>

#include "numeric/ranges.hpp"
#include "numeric/reflections.hpp"

namespace potl::numeric::spectrum_detail {
namespace {

std::size_t to_size(std::int64_t x) { return static_cast<std::size_t>(x); }

}  // namespace

std::optional<int> scaled(const double_matrix& a) {
  const std::span all(a.data, to_size(a.rows * a.columns));
  double largest = 0.0;
  for (const double element : all) {
    if (!std::isfinite(element)) return std::nullopt;
    largest = std::max(largest, std::fabs(element));
  }
  int exponent = 0;
  std::frexp(largest, &exponent);
  for (double& element : all) element = std::ldexp(element, -exponent);
  return exponent;
}

bool diagonalized(two_diagonals& b, const std::function<void(std::size_t, std::size_t)>& step) {
  std::vector<double>&d = b.diagonal, &e = b.beside;
  const auto is_nothing = [&](std::size_t i) {
    const double around = std::fabs(d[i]) + std::fabs(d[i + 1]);
    // Steps leave rounding errors of some 2^-53 there, for ever where values are clustered.
    return std::fabs(e[i]) <= std::max(0x1p-50 * around, smallest);
  };
  std::size_t left = 30 * d.size();
  for (std::size_t m = d.empty() ? 0 : d.size() - 1; m > 0;) {
    if (is_nothing(m - 1)) {
      e[--m] = 0.0;
      continue;
    }
    if (left-- == 0) return false;
    std::size_t l = m - 1;
    while (l > 0 && !is_nothing(l - 1)) --l;
    step(l, m);
  }
  return true;
}

turned::turned(std::int64_t size, const executor& workers)
    : size_(size), workers_(workers), values_(to_size(size * size)) {
  for (std::int64_t i = 0; i < size; ++i) values_[to_size(i * size + i)] = 1.0;
}

void turned::turn(std::int64_t first, double c, double s) {
  constexpr std::size_t most = std::size_t{1} << 15;
  if (size_ == 0) return;
  steps_.push_back({first, c, s});
  if (steps_.size() == most) flush();
}

/// The steps on eight rows, transposed. A column that the next step turns too stays in registers.
void turned::turn_lanes(std::span<const step> steps, double* columns) {
  std::array<double, lanes> x{};
  double* held = nullptr;
  for (const step& now : steps) {
    const double c = now.c, s = now.s;
    double* const first = columns + now.first * lanes;
    if (first != held) {
      if (held != nullptr) std::copy(x.begin(), x.end(), held);
      std::copy_n(first, lanes, x.begin());
    }
    held = first + lanes;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const double y = held[lane];
      first[lane] = c * x[lane] + s * y;
      x[lane] = c * y - s * x[lane];
    }
  }
  if (held != nullptr) std::copy(x.begin(), x.end(), held);
}

/// Rows do not depend on each other: a few of them at a time, transposed, stay in a cache.
void turned::flush() {
  const std::int64_t blocks = (size_ + lanes - 1) / lanes;
  const auto cost = static_cast<std::int64_t>(steps_.size()) * lanes;
  for_ranges(workers_, blocks, cost, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> memory(to_size(size_ * lanes));
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t row = block * lanes, count = std::min(lanes, size_ - row);
      double* const rows = values_.data() + row * size_;
      for (std::int64_t lane = 0; lane < count; ++lane) {
        for (std::int64_t j = 0; j < size_; ++j) {
          memory[to_size(j * lanes + lane)] = rows[lane * size_ + j];
        }
      }
      turn_lanes(steps_, memory.data());
      for (std::int64_t lane = 0; lane < count; ++lane) {
        for (std::int64_t j = 0; j < size_; ++j) {
          rows[lane * size_ + j] = memory[to_size(j * lanes + lane)];
        }
      }
    }
  });
  steps_.clear();
}

void turned::place(std::span<const std::int64_t> order, const double_matrix& to) {
  flush();
  for (std::int64_t i = 0; i < to.rows; ++i) {
    for (std::int64_t j = 0; j < to.columns; ++j) {
      const bool is_inside = i < size_ && j < size_;
      to(i, j) = is_inside ? values_[to_size(i * size_ + order[to_size(j)])] : i == j ? 1.0 : 0.0;
    }
  }
}

void reflections::add(std::int64_t row, double tau, std::vector<double> v) {
  if (tau != 0.0) all_.push_back({row, tau, std::move(v)});
}

void reflections::apply(const double_matrix& x, const executor& workers) const {
  constexpr std::int64_t width = 32;
  const std::int64_t blocks = (x.columns + width - 1) / width;
  const std::int64_t cost = width * x.rows * static_cast<std::int64_t>(all_.size());
  for_ranges(workers, blocks, cost, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums;
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * width, last = std::min(first + width, x.columns);
      for (std::size_t k = all_.size(); k-- > 0;) {
        reflect(x, all_[k].v, all_[k].tau, all_[k].row, first, last, sums);
      }
    }
  });
}

std::vector<double> signs_of(const double_matrix& x) {
  std::vector<double> largest(to_size(x.columns), 0.0), signs(largest.size(), 1.0);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.columns; ++j) {
      const auto at = to_size(j);
      if (std::fabs(x(i, j)) <= largest[at]) continue;
      largest[at] = std::fabs(x(i, j));
      signs[at] = x(i, j) < 0.0 ? -1.0 : 1.0;
    }
  }
  return signs;
}

void multiply_columns(const double_matrix& x, std::span<const double> by) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.columns; ++j) x(i, j) *= by[to_size(j)];
  }
}

}  // namespace potl::numeric::spectrum_detail

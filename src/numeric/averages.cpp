// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/averages.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>

#include <potl/numeric/detail/distance.hpp>

#include "widen.hpp"

namespace potl::numeric {
namespace {

constexpr std::size_t read_block = 512;
constexpr std::size_t dot_lanes = 8;  // independent sums, so that the compiler may use vectors
// As many elements are looked at by the least squares.
constexpr std::size_t sampled_elements = 1 << 16;
// Products, their sum, and what they are of are rounded.
constexpr double average_roundings = 4;
// Three factors make any three numbers of any others.
constexpr std::size_t factors = 3;

using doubles = std::vector<double>;

// The elements of one tensor, read in blocks.
struct element_reader {
  dtype type;
  std::size_t count;
  bytes_view bytes;

  void read(std::size_t from, std::size_t some, double* to) const noexcept {
    if (bytes.empty()) {
      std::fill_n(to, some, 0.0);
    } else {
      widen(type, bytes.data() + from * (info(type).size / lanes_of(type)), some, to);
    }
  }
  template <class Test>
  bool all_of(Test holds) const {
    std::array<double, read_block> some;
    for (std::size_t at = 0; at < count; at += read_block) {
      const std::size_t now = std::min(read_block, count - at);
      read(at, now, some.data());
      if (!std::all_of(some.data(), some.data() + now, holds)) return false;
    }
    return true;
  }
  template <class Test>
  bool all_of(const element_reader& other, Test holds) const {
    std::array<double, read_block> own, its;
    for (std::size_t at = 0; at < count; at += read_block) {
      const std::size_t now = std::min(read_block, count - at);
      read(at, now, own.data());
      other.read(at, now, its.data());
      if (!std::equal(own.data(), own.data() + now, its.data(), holds)) return false;
    }
    return true;
  }
  doubles each(std::size_t stride) const {
    doubles out;
    out.reserve((count + stride - 1) / stride);
    for (std::size_t at = 0; at < count; at += stride) read(at, 1, &out.emplace_back());
    return out;
  }
};

// The nearest number of a type, less those that are too large for it.
double rounded_to(dtype type, double value) noexcept {
  if (type == dtype::f64 || !std::isfinite(value)) return value;
  int exponent = 0, digits = 0;
  std::frexp(value, &exponent);
  std::frexp(unit_roundoff(type), &digits);
  const int last = std::max(exponent + digits - 1, std::ilogb(smallest(type)));
  return std::ldexp(std::nearbyint(std::ldexp(value, -last)), last);
}

bool starts_as(const element_reader& own, const element_reader& other) {
  const auto equal = [&](double a, double b) { return a == b || a == rounded_to(own.type, b); };
  return own.all_of(other, equal);
}

// Whether values differ by far more than they are rounded by.
bool is_uneven(const element_reader& of, double unit) {
  double sum = 0, apart = 0, size = 0;
  of.all_of([&](double one) {
    sum += one;
    return true;
  });
  const double mean = sum / static_cast<double>(of.count);
  of.all_of([&](double one) {
    apart += (one - mean) * (one - mean);
    size += one * one;
    return true;
  });
  return std::sqrt(apart) > 16 * average_roundings * unit * std::sqrt(size);
}

double dot(const doubles& a, const doubles& b) noexcept {
  std::array<double, dot_lanes> sums{};
  std::size_t at = 0;
  for (; at + dot_lanes <= a.size(); at += dot_lanes) {
    for (std::size_t k = 0; k < dot_lanes; ++k) sums[k] += a[at + k] * b[at + k];
  }
  for (; at < a.size(); ++at) sums[0] += a[at] * b[at];
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

using columns = std::array<doubles, factors>;
using factor_row = std::array<double, factors>;

// The smallest factors by which the sum of columns is nearest to `of`. The columns are rotated, two
// at a time, until they are orthogonal (M. R. Hestenes, Inversion of matrices by
// biorthogonalization, 1958), so that their lengths are singular values.
factor_row least_squares(columns a, const doubles& of) {
  constexpr double unit = std::numeric_limits<double>::epsilon();
  std::array<factor_row, factors> turned{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
  const auto turn = [](auto& p, auto& q, double c, double s) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double x = p[i], y = q[i];
      p[i] = c * x - s * y;
      q[i] = s * x + c * y;
    }
  };
  bool orthogonal = false;
  for (int sweep = 0; sweep < 32 && !orthogonal; ++sweep) {
    orthogonal = true;
    for (std::size_t p = 0; p + 1 < factors; ++p) {
      for (std::size_t q = p + 1; q < factors; ++q) {
        const double pp = dot(a[p], a[p]), qq = dot(a[q], a[q]), pq = dot(a[p], a[q]);
        if (!(std::fabs(pq) > unit * std::sqrt(pp) * std::sqrt(qq))) continue;
        orthogonal = false;
        const double zeta = (qq - pp) / (2 * pq);
        const double t = std::copysign(1, zeta) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
        const double c = 1 / std::sqrt(1 + t * t);
        turn(a[p], a[q], c, c * t);
        turn(turned[p], turned[q], c, c * t);
      }
    }
  }
  factor_row squares, out{};
  for (std::size_t i = 0; i < factors; ++i) squares[i] = dot(a[i], a[i]);
  const double nothing = unit * static_cast<double>(of.size());
  const double least = nothing * nothing * *std::max_element(squares.begin(), squares.end());
  for (std::size_t i = 0; i < factors; ++i) {
    if (squares[i] <= least) continue;
    const double by = dot(a[i], of) / squares[i];
    for (std::size_t k = 0; k < factors; ++k) out[k] += by * turned[i][k];
  }
  return out;
}

// Whether values are a sum of what they were and of another tensor's values before and after the
// step, each times a factor.
bool is_step_of_average(const doubles& after, const doubles& before, const doubles& of_before,
                        const doubles& of_after, double unit) {
  // Differences, because all of these are nearly equal; of one length each, for the same reason.
  columns terms{before, of_before, of_after};
  std::transform(of_before.begin(), of_before.end(), before.begin(), terms[1].begin(),
                 std::minus<>());
  std::transform(of_after.begin(), of_after.end(), of_before.begin(), terms[2].begin(),
                 std::minus<>());
  for (doubles& term : terms) {
    const double length = std::sqrt(dot(term, term));
    if (!std::isfinite(length)) return false;
    if (length > 0) std::for_each(term.begin(), term.end(), [&](double& one) { one /= length; });
  }
  const factor_row by = least_squares(terms, after);
  double left = 0, most = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    double sum = 0, sizes = 0;
    for (std::size_t k = 0; k < factors; ++k) {
      sum += by[k] * terms[k][i];
      sizes += std::fabs(by[k] * terms[k][i]);
    }
    left += (after[i] - sum) * (after[i] - sum);
    most += sizes * sizes;
  }
  return std::sqrt(left) <= average_roundings * unit * std::sqrt(most);
}

}  // namespace

bool is_average(const tensor_course& own, const tensor_course& other) {
  const double unit = std::max(unit_roundoff(own.type), unit_roundoff(other.type));
  const bool suits = unit_roundoff(own.type) > 0 && unit_roundoff(other.type) > 0 &&
                     info(own.type).size > 1 && info(other.type).size > 1 &&
                     lanes_of(own.type) == lanes_of(other.type) && own.dims == other.dims;
  if (!suits) return false;
  const auto readers_of = [](const tensor_course& all) {
    std::size_t count = lanes_of(all.type);
    for (const std::uint64_t dim : all.dims) count *= dim;
    std::vector<element_reader> out;
    for (const bytes_view one : all.values) out.push_back({all.type, count, one});
    return out;
  };
  const std::vector<element_reader> mine = readers_of(own), its = readers_of(other);
  const element_reader& first = mine.front();
  if (first.count <= factors * lanes_of(own.type)) return false;
  const auto is_zero = [](double one) { return one == 0; };
  const auto moves = [&](const element_reader& one) {
    return !one.all_of(first, std::equal_to<>());
  };
  const bool starts_as_zeros =
      first.all_of(is_zero) && std::any_of(mine.begin(), mine.end(), moves);
  if (!starts_as_zeros && !starts_as(first, its.front())) return false;
  // Statistics of norms, too, start as one number everywhere, and as their weights and biases do.
  const auto uneven = [&](const element_reader& one) { return is_uneven(one, unit); };
  if (own.dims.size() < 2 && std::none_of(mine.begin(), mine.end(), uneven)) return false;
  const std::size_t stride = (first.count + sampled_elements - 1) / sampled_elements;
  for (std::size_t i = 0; i + 1 < mine.size(); ++i) {
    if (!is_step_of_average(mine[i + 1].each(stride), mine[i].each(stride), its[i].each(stride),
                            its[i + 1].each(stride), unit)) {
      return false;
    }
  }
  return true;
}

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/complex.hpp>

#include <cmath>
#include <limits>

#include <potl/core/error.hpp>

#include "ranges.hpp"

namespace potl::numeric {
namespace {

struct pair {
  double re, im;
};

pair product_of(pair z, pair w) { return {z.re * w.re - z.im * w.im, z.re * w.im + z.im * w.re}; }

pair quotient_of(pair z, pair w) {
  if (std::fabs(w.re) >= std::fabs(w.im)) {
    const double r = w.im / w.re, t = w.re + w.im * r;
    return {(z.re + z.im * r) / t, (z.im - z.re * r) / t};
  }
  const double r = w.re / w.im, t = w.im + w.re * r;
  return {(z.re * r + z.im) / t, (z.im * r - z.re) / t};
}

template <class Real>
double magnitude(pair z) {
  if (std::isinf(z.re) || std::isinf(z.im)) return std::numeric_limits<double>::infinity();
  if constexpr (sizeof(Real) == 4) return std::sqrt(z.re * z.re + z.im * z.im);
  const double a = std::fabs(z.re), b = std::fabs(z.im);
  const double larger = a < b ? b : a, ratio = (a < b ? a : b) / larger;
  return a == 0 && b == 0 ? 0.0 : larger * std::sqrt(1 + ratio * ratio);
}

template <class Real>
pair direction(pair z) {
  const double size = magnitude<Real>(z);
  return size == 0 ? pair{0, 0} : pair{z.re / size, z.im / size};
}

template <class Real>
Real rounded(double value) {
  return value == value ? static_cast<Real>(value) : std::numeric_limits<Real>::quiet_NaN();
}

template <class Real>
pair number(std::span<const Real> of, std::size_t i) {
  return {of[2 * i], of[2 * i + 1]};
}

template <class Real>
void put(std::span<Real> to, std::size_t i, pair value) {
  to[2 * i] = rounded<Real>(value.re);
  to[2 * i + 1] = rounded<Real>(value.im);
}

void require(bool fits) {
  if (!fits) throw exception({errc::usage, "operands have different lengths", ""});
}

template <class Body>
void for_numbers(std::size_t values, const executor& workers, const Body& body) {
  require(values % 2 == 0);
  for_ranges(
      workers, static_cast<std::int64_t>(values / 2), 4, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
          body(i);
      });
}

template <class Real>
void apply_to(complex_binary function, std::span<const Real> z, std::span<const Real> w,
              std::span<Real> out, const executor& workers) {
  require(z.size() == out.size() && w.size() == out.size());
  const auto each = [&](const auto& of) {
    for_numbers(out.size(), workers,
                [&](std::size_t i) { put(out, i, of(number(z, i), number(w, i))); });
  };
  // Not the functions' addresses: they would be called for each number.
  if (function == complex_binary::product) {
    each([](pair a, pair b) { return product_of(a, b); });
  } else {
    each([](pair a, pair b) { return quotient_of(a, b); });
  }
}

template <class Real>
void magnitudes_to(std::span<const Real> z, std::span<Real> out, const executor& workers) {
  require(z.size() / 2 == out.size());
  for_numbers(z.size(), workers,
              [&](std::size_t i) { out[i] = rounded<Real>(magnitude<Real>(number(z, i))); });
}

template <class Real>
void directions_to(std::span<const Real> z, std::span<Real> out, const executor& workers) {
  require(z.size() == out.size());
  for_numbers(z.size(), workers,
              [&](std::size_t i) { put(out, i, direction<Real>(number(z, i))); });
}

}  // namespace

void apply(complex_binary function, std::span<const float> z, std::span<const float> w,
           std::span<float> out, const executor& workers) {
  apply_to(function, z, w, out, workers);
}
void apply(complex_binary function, std::span<const double> z, std::span<const double> w,
           std::span<double> out, const executor& workers) {
  apply_to(function, z, w, out, workers);
}

void magnitudes(std::span<const float> z, std::span<float> out, const executor& workers) {
  magnitudes_to(z, out, workers);
}
void magnitudes(std::span<const double> z, std::span<double> out, const executor& workers) {
  magnitudes_to(z, out, workers);
}

void directions(std::span<const float> z, std::span<float> out, const executor& workers) {
  directions_to(z, out, workers);
}
void directions(std::span<const double> z, std::span<double> out, const executor& workers) {
  directions_to(z, out, workers);
}

}  // namespace potl::numeric

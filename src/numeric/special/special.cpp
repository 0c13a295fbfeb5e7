// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/special.hpp>
#include <potl/statistics/detail/quantile.hpp>

#include "../elementwise/parallel.hpp"
#include "functions.hpp"
#include "scalar.hpp"

namespace potl::numeric {
namespace {

using namespace specials;

/// Elements that are worth a task.
constexpr std::size_t block = 1024;

double sinc(double x) {
  if (x == 0.0) return 1.0;
  if (magnitude(x) == infinity) return not_a_number;
  return turn(x).sine / (pi * x);
}
double entropy(double x) {
  if (x < 0.0) return -infinity;
  return x == 0.0 ? 0.0 : -x * log(x);
}
/// In two factors: exp alone overflows before the function does.
double bessel(int order, double x) {
  const double a = magnitude(x);
  const double half = exp(0.5 * a);
  if (a == infinity) return order == 0 ? a : x;
  return bessel_scaled(order, x) * half * half;
}

double value_of(special function, double x) {
  switch (function) {
    case special::acos: return atan2(root((1.0 - x) * (1.0 + x)), x);
    case special::asin: return atan2(x, root((1.0 - x) * (1.0 + x)));
    case special::atan: return atan2(x, 1.0);
    case special::acosh: return acosh(x);
    case special::asinh: return asinh(x);
    case special::atanh: return atanh(x);
    case special::sinc: return sinc(x);
    case special::lgamma: return lgamma(x);
    case special::digamma: return digamma(x);
    case special::trigamma: return trigamma(x);
    case special::entr: return entropy(x);
    case special::ndtri: return normal_quantile(x);
    case special::i0: return bessel(0, x);
    case special::i0e: return bessel_scaled(0, x);
    case special::i1: return bessel(1, x);
    case special::i1e: return bessel_scaled(1, x);
  }
  return not_a_number;
}
double value_of(special_pair function, double x, double y) {
  switch (function) {
    case special_pair::atan2: return atan2(x, y);
    case special_pair::xlog1py: return x == 0.0 && y == y ? 0.0 : x * log1p(y);
  }
  return not_a_number;
}

/// Every NaN as the same one.
double canonical(double x) { return x == x ? x : not_a_number; }

template <class Real>
void apply_one(special function, std::span<const Real> x, std::span<Real> y,
               const executor& workers) {
  require_lengths(y.size(), {x.size()});
  for_blocks(y.size(), block, workers, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      y[i] = static_cast<Real>(evaluate(function, static_cast<double>(x[i])));
    }
  });
}
template <class Real>
void apply_two(special_pair function, std::span<const Real> x, std::span<const Real> y,
               std::span<Real> out, const executor& workers) {
  require_lengths_or_one(out.size(), {x.size(), y.size()});
  const std::size_t x_step = x.size() == 1 ? 0 : 1, y_step = y.size() == 1 ? 0 : 1;
  for_blocks(out.size(), block, workers, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      out[i] = static_cast<Real>(evaluate(function, static_cast<double>(x[i * x_step]),
                                          static_cast<double>(y[i * y_step])));
    }
  });
}

}  // namespace

const char* to_string(special function) noexcept {
  switch (function) {
    case special::acos: return "acos";
    case special::asin: return "asin";
    case special::atan: return "atan";
    case special::acosh: return "acosh";
    case special::asinh: return "asinh";
    case special::atanh: return "atanh";
    case special::sinc: return "sinc";
    case special::lgamma: return "lgamma";
    case special::digamma: return "digamma";
    case special::trigamma: return "trigamma";
    case special::entr: return "entr";
    case special::ndtri: return "ndtri";
    case special::i0: return "i0";
    case special::i0e: return "i0e";
    case special::i1: return "i1";
    case special::i1e: return "i1e";
  }
  return "unknown";
}
const char* to_string(special_pair function) noexcept {
  return function == special_pair::atan2 ? "atan2" : "xlog1py";
}

double evaluate(special function, double x) noexcept { return canonical(value_of(function, x)); }
double evaluate(special_pair function, double x, double y) noexcept {
  return canonical(value_of(function, x, y));
}

void apply(special function, std::span<const float> x, std::span<float> y,
           const executor& workers) {
  apply_one(function, x, y, workers);
}
void apply(special function, std::span<const double> x, std::span<double> y,
           const executor& workers) {
  apply_one(function, x, y, workers);
}
void apply(special_pair function, std::span<const float> x, std::span<const float> y,
           std::span<float> out, const executor& workers) {
  apply_two(function, x, y, out, workers);
}
void apply(special_pair function, std::span<const double> x, std::span<const double> y,
           std::span<double> out, const executor& workers) {
  apply_two(function, x, y, out, workers);
}

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Compiled with -fno-math-errno (CMakeLists.txt): square roots become one instruction.
#include <potl/numeric/detail/ieee.hpp>

#include <cmath>

#include <potl/core/error.hpp>

#include "binary.hpp"
#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace {

/// body(begin, end) over parts of [0, count).
template <class Body>
void in_parts(std::size_t count, const executor& workers, const Body& body) {
  for_ranges(workers, static_cast<std::int64_t>(count), 1,
             [&](std::int64_t begin, std::int64_t end) {
               body(static_cast<std::size_t>(begin), static_cast<std::size_t>(end));
             });
}

void require(bool fits) {
  if (!fits) throw exception({errc::usage, "operands have different lengths", ""});
}

using ieee::canonical;

/// out[i] = body(x[i], y[i])
template <class Real, class Body>
void each_of_two(std::span<const Real> x, std::span<const Real> y, std::span<Real> out,
                 const executor& workers, const Body& body) {
  require((x.size() == out.size() || x.size() == 1) && (y.size() == out.size() || y.size() == 1));
  const std::size_t x_step = x.size() == 1 ? 0 : 1;
  const std::size_t y_step = y.size() == 1 ? 0 : 1;
  in_parts(out.size(), workers, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) out[i] = body(x[i * x_step], y[i * y_step]);
  });
}

template <class Real>
void apply_to(ieee_binary function, std::span<const Real> x, std::span<const Real> y,
              std::span<Real> out, const executor& workers) {
  const auto rest = [](Real a, Real b) { return std::fmod(a, b); };
  each_of_two(x, y, out, workers,
              [=](Real a, Real b) { return ieee::compute(function, a, b, rest); });
}

template <class Real>
void soft_shrink_to(std::span<const Real> x, double lambda, std::span<Real> out,
                    const executor& workers) {
  require(x.size() == out.size());
  const auto high = static_cast<Real>(lambda);
  // x less its nearest within the bounds: no branch, and +0 where x is that itself.
  const auto body = [high, low = -high](Real value, Real) {
    const Real not_above = value > high ? high : value;
    return canonical(value - (not_above < low ? low : not_above));
  };
  each_of_two(x, x, out, workers, body);
}

template <class Real>
void pass_between_to(std::span<const Real> value, std::span<const Real> x, bounds of,
                     std::span<Real> out, const executor& workers) {
  const auto low = static_cast<Real>(of.low);
  const auto high = static_cast<Real>(of.high);
  each_of_two(value, x, out, workers,
              [=](Real v, Real at) { return low < at && at < high ? canonical(v) : Real{0}; });
}

template <class Real>
void pass_beyond_to(std::span<const Real> value, std::span<const Real> x, bounds of,
                    std::span<Real> out, const executor& workers) {
  const auto low = static_cast<Real>(of.low);
  const auto high = static_cast<Real>(of.high);
  each_of_two(value, x, out, workers,
              [=](Real v, Real at) { return at < low || at > high ? canonical(v) : Real{0}; });
}

template <class Real>
void square_roots(std::span<const Real> x, std::span<Real> y, const executor& workers) {
  require(x.size() == y.size());
  in_parts(y.size(), workers, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) y[i] = canonical(std::sqrt(x[i]));
  });
}

template <class Real>
void steps(double start, double step, std::span<Real> out, const executor& workers) {
  in_parts(out.size(), workers, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      out[i] = static_cast<Real>(start + static_cast<double>(i) * step);
    }
  });
}

template <class Real>
void line(double start, double end_value, std::span<Real> out, const executor& workers) {
  const std::size_t count = out.size();
  const double step = count < 2 ? 0.0 : (end_value - start) / static_cast<double>(count - 1);
  in_parts(count, workers, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      out[i] = i < count / 2 || count == 1
                   ? static_cast<Real>(start + static_cast<double>(i) * step)
                   : static_cast<Real>(end_value - static_cast<double>(count - 1 - i) * step);
    }
  });
}

}  // namespace

void square_root(std::span<const float> x, std::span<float> y, const executor& workers) {
  square_roots(x, y, workers);
}
void square_root(std::span<const double> x, std::span<double> y, const executor& workers) {
  square_roots(x, y, workers);
}

void apply(ieee_binary function, std::span<const float> x, std::span<const float> y,
           std::span<float> out, const executor& workers) {
  apply_to(function, x, y, out, workers);
}
void apply(ieee_binary function, std::span<const double> x, std::span<const double> y,
           std::span<double> out, const executor& workers) {
  apply_to(function, x, y, out, workers);
}

void soft_shrink(std::span<const float> x, double lambda, std::span<float> out,
                 const executor& workers) {
  soft_shrink_to(x, lambda, out, workers);
}
void soft_shrink(std::span<const double> x, double lambda, std::span<double> out,
                 const executor& workers) {
  soft_shrink_to(x, lambda, out, workers);
}

void pass_between(std::span<const float> value, std::span<const float> x, bounds of,
                  std::span<float> out, const executor& workers) {
  pass_between_to(value, x, of, out, workers);
}
void pass_between(std::span<const double> value, std::span<const double> x, bounds of,
                  std::span<double> out, const executor& workers) {
  pass_between_to(value, x, of, out, workers);
}

void pass_beyond(std::span<const float> value, std::span<const float> x, bounds of,
                 std::span<float> out, const executor& workers) {
  pass_beyond_to(value, x, of, out, workers);
}
void pass_beyond(std::span<const double> value, std::span<const double> x, bounds of,
                 std::span<double> out, const executor& workers) {
  pass_beyond_to(value, x, of, out, workers);
}

void fill_steps(double start, double step, std::span<float> out, const executor& workers) {
  steps(start, step, out, workers);
}
void fill_steps(double start, double step, std::span<double> out, const executor& workers) {
  steps(start, step, out, workers);
}

void fill_line(double start, double end, std::span<float> out, const executor& workers) {
  line(start, end, out, workers);
}
void fill_line(double start, double end, std::span<double> out, const executor& workers) {
  line(start, end, out, workers);
}

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/reduction.hpp>

#include <cmath>

#include "drive.hpp"

namespace potl::numeric {
namespace reductions {

namespace {

term term_of(reduction kind) {
  switch (kind) {
    case reduction::sum:
    case reduction::mean: return term::value;
    case reduction::sum_of_squares:
    case reduction::norm: return term::square;
    case reduction::sum_of_magnitudes: return term::magnitude;
    case reduction::product: return term::factor;
    case reduction::maximum: return term::maximum;
    case reduction::minimum: return term::minimum;
    case reduction::largest_magnitude: return term::largest_magnitude;
  }
  return term::value;
}

template <class Real>
void reduce_any(reduction kind, const reduction_shape& shape, const Real* x, Real* y,
                const executor& workers) {
  const sizes s = checked(shape);
  const std::size_t results = s.outer * s.inner;
  if (s.count == 0) {
    if (results != 0 && (kind == reduction::maximum || kind == reduction::minimum))
      throw exception({errc::usage, "there is no extreme of nothing", ""});
    const Real nothing = kind == reduction::product ? Real{1}
                         : kind == reduction::mean  ? std::numeric_limits<Real>::quiet_NaN()
                                                    : Real{0};
    std::fill_n(y, results, nothing);
    return;
  }
  reduce_terms<Real>(term_of(kind), {x, nullptr, nullptr, nullptr, false}, s, y, workers);
  const Real count = static_cast<Real>(s.count);
  for (std::size_t i = 0; i < results; ++i) {
    if (kind == reduction::mean) y[i] = canonical(y[i] / count);
    if (kind == reduction::norm) y[i] = canonical(std::sqrt(y[i]));
  }
}

template <class Real>
void sum_products_any(const reduction_shape& shape, const Real* x, const Real* y, Real* out,
                      const executor& workers) {
  const sizes s = checked(shape);
  if (s.count == 0) {
    std::fill_n(out, s.outer * s.inner, Real{0});
    return;
  }
  reduce_terms<Real>(term::product_of_two, {x, y, nullptr, nullptr, false}, s, out, workers);
}

template <class Real>
void variance_any(const reduction_shape& shape, const Real* x, double correction, Real* mean,
                  Real* result, const executor& workers) {
  const sizes s = checked(shape);
  std::vector<Real> own(mean == nullptr ? s.outer * s.inner : 0);
  Real* means = mean == nullptr ? own.data() : mean;
  reduce_any(reduction::mean, shape, x, means, workers);
  if (result == nullptr) return;
  const std::size_t results = s.outer * s.inner;
  if (s.count == 0) {
    std::fill_n(result, results, std::numeric_limits<Real>::quiet_NaN());
    return;
  }
  reduce_terms<Real>(term::deviation, {x, nullptr, means, nullptr, false}, s, result, workers);
  const double freedom = std::max(0.0, static_cast<double>(s.count) - correction);
  for (std::size_t i = 0; i < results; ++i)
    result[i] = canonical(result[i] / static_cast<Real>(freedom));
}

template <class Real, class Join>
void scan(const reduction_shape& shape, const Real* x, Real* y, const executor& workers,
          const Join& join) {
  const sizes s = checked(shape);
  if (s.count == 0) return;
  for_items(s.outer * s.inner, s.count, workers, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t at = i / s.inner * s.count * s.inner + i % s.inner;
      Real value = x[at];
      y[at] = canonical(value);
      for (std::size_t k = 1; k < s.count; ++k) {
        value = join(value, x[at + k * s.inner]);
        y[at + k * s.inner] = canonical(value);
      }
    }
  });
}

}  // namespace
}  // namespace reductions

using namespace reductions;

const char* to_string(reduction kind) noexcept {
  switch (kind) {
    case reduction::sum: return "sum";
    case reduction::mean: return "mean";
    case reduction::sum_of_squares: return "sum_of_squares";
    case reduction::sum_of_magnitudes: return "sum_of_magnitudes";
    case reduction::norm: return "norm";
    case reduction::product: return "product";
    case reduction::maximum: return "maximum";
    case reduction::minimum: return "minimum";
    case reduction::largest_magnitude: return "largest_magnitude";
  }
  return "unknown";
}

// NOLINTBEGIN(bugprone-macro-parentheses): the argument is a type
#define POTL_DEFINE(Real)                                                                   \
  void reduce(reduction kind, const reduction_shape& shape, const Real* x, Real* y,         \
              const executor& workers) {                                                    \
    reduce_any(kind, shape, x, y, workers);                                                 \
  }                                                                                         \
  void sum_products(const reduction_shape& shape, const Real* x, const Real* y, Real* out,  \
                    const executor& workers) {                                              \
    sum_products_any(shape, x, y, out, workers);                                            \
  }                                                                                         \
  void variance(const reduction_shape& shape, const Real* x, double correction, Real* mean, \
                Real* result, const executor& workers) {                                    \
    variance_any(shape, x, correction, mean, result, workers);                              \
  }                                                                                         \
  void cumulative_sum(const reduction_shape& shape, const Real* x, Real* y,                 \
                      const executor& workers) {                                            \
    scan(shape, x, y, workers, [](Real a, Real b) { return a + b; });                       \
  }                                                                                         \
  void cumulative_product(const reduction_shape& shape, const Real* x, Real* y,             \
                          const executor& workers) {                                        \
    scan(shape, x, y, workers, [](Real a, Real b) { return a * b; });                       \
  }
// NOLINTEND(bugprone-macro-parentheses)
POTL_DEFINE(float)
POTL_DEFINE(double)
#undef POTL_DEFINE

}  // namespace potl::numeric

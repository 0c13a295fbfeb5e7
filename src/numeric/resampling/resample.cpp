// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/resampling.hpp>

#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace {

template <class Real>
void first_tap(Real weight, const Real* __restrict x, Real* __restrict y, std::int64_t n) noexcept {
  for (std::int64_t i = 0; i < n; ++i) y[i] = weight * x[i];
}

template <class Real>
void next_tap(Real weight, const Real* __restrict x, Real* __restrict y, std::int64_t n) noexcept {
  for (std::int64_t i = 0; i < n; ++i) y[i] = y[i] + weight * x[i];
}

template <class Real>
void apply(const tap_table& table, std::int64_t outer, std::int64_t inner, const Real* x, Real* y,
           const executor& workers) {
  if (outer < 0 || inner < 0) throw exception({errc::usage, "a shape with a negative size", ""});
  const std::int64_t outputs = table.outputs();
  if (outer == 0 || inner == 0 || outputs == 0) return;
  const std::vector<Real> weights(table.weights.begin(), table.weights.end());
  const auto cost =
      static_cast<std::int64_t>(1 + table.positions.size() / static_cast<std::size_t>(outputs)) *
      inner;
  for_ranges(workers, outer * outputs, cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t j = row % outputs;
      const Real* from = x + row / outputs * table.inputs * inner;
      Real* to = y + row * inner;
      auto tap = static_cast<std::size_t>(table.first[static_cast<std::size_t>(j)]);
      const auto last = static_cast<std::size_t>(table.first[static_cast<std::size_t>(j) + 1]);
      if (tap == last) {
        std::fill(to, to + inner, Real{0});
        continue;
      }
      first_tap(weights[tap], from + table.positions[tap] * inner, to, inner);
      while (++tap < last) {
        next_tap(weights[tap], from + table.positions[tap] * inner, to, inner);
      }
    }
  });
}

}  // namespace

void resample(const tap_table& table, std::int64_t outer, std::int64_t inner, const float* x,
              float* y, const executor& workers) {
  apply(table, outer, inner, x, y, workers);
}
void resample(const tap_table& table, std::int64_t outer, std::int64_t inner, const double* x,
              double* y, const executor& workers) {
  apply(table, outer, inner, x, y, workers);
}

}  // namespace potl::numeric

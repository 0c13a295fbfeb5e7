// SPDX-License-Identifier: Apache-2.0
// cr32 and log64: sums in double, then a test whether the rounding is certain; what is not certain
// is looked at alone (rounding.hpp).
#include <algorithm>
#include <mutex>
#include <numeric>

#include <potl/core/detail/rng.hpp>
#include <potl/numeric/detail/exact_sum.hpp>

#include "numeric/gemm/blocked.hpp"
#include "numeric/gemm/modes.hpp"
#include "numeric/gemm/to_rounded.hpp"

namespace potl::numeric::detail {

// Fisher and Yates.
std::vector<std::int64_t> permutation(std::int64_t count, std::uint64_t number) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  const random_key key{number, 0};
  for (std::size_t i = out.size(); i > 1; --i) {
    std::swap(out[i - 1], out[static_cast<std::size_t>(random_below(key, i, i))]);
  }
  return out;
}

void correctly_rounded(matrix<const float> a, matrix<const float> b, matrix<float> c,
                       const executor& threads) {
  const kernels_widening& body = active_widening();
  const norms bounds = norms_of(body, a, b, error_factor(a.columns), threads);
  const to_rounded output(body, a, b, c, bounds, max_rounding_bits, nullptr,
                          [&](const unsettled& one, const dot_operands& operands) {
                            const double both =
                                bounds.row_norm(one.row) * bounds.column_norm(one.column);
                            return correctly_rounded(operands, both, max_rounding_bits);
                          });
  const product<float, double, double> p{body.product,           a,       b,
                                         log64_chunk(a.columns), nullptr, threads};
  multiply_blocked(p, output);
  output.settle_rest(threads);
}

void rounded(matrix<const float> a, matrix<const float> b, matrix<float> c,
             const log64_options& options, const executor& threads, std::uint64_t first_index,
             std::vector<near_tie>& ties) {
  const kernels_widening& body = active_widening();
  const norms bounds = norms_of(body, a, b, 2 * error_factor(a.columns), threads);
  std::vector<std::int64_t> order;
  if (options.order != 0) order = permutation(a.columns, options.order);
  std::mutex guard;
  const std::size_t before = ties.size();
  const auto log = [&](const unsettled& one) {
    const auto index = static_cast<std::uint64_t>(one.row * c.columns + one.column);
    const std::lock_guard lock(guard);
    ties.push_back({first_index + index, one.sum, bounds.window(one.row, one.column)});
  };
  const auto early = [&](const unsettled& one, const dot_operands& operands) {
    const bool found =
        is_near_tie(one.sum, bounds.window(one.row, one.column), options.bits, operands,
                    bounds.row_norm(one.row), bounds.column_norm(one.column));
    if (found) log(one);
    return found;
  };
  const auto settle = [&](const unsettled& one, const dot_operands& operands) {
    const settled_element element =
        settled(one.sum, bounds.window(one.row, one.column), options.bits, operands,
                bounds.row_norm(one.row), bounds.column_norm(one.column));
    if (element.logged) log(one);
    return element.value;
  };
  const to_rounded output(body, a, b, c, bounds, options.bits, early, settle);
  const product<float, double, double> p{
      body.product, a, b, log64_chunk(a.columns), order.empty() ? nullptr : order.data(), threads};
  multiply_blocked(p, output);
  output.settle_rest(threads);
  std::sort(ties.begin() + static_cast<std::ptrdiff_t>(before), ties.end(),
            [](const near_tie& x, const near_tie& y) { return x.index < y.index; });
}

}  // namespace potl::numeric::detail

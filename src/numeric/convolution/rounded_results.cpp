// SPDX-License-Identifier: Apache-2.0
#include "rounded_results.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <potl/numeric/detail/exact_sum.hpp>

#include "numeric/gemm/modes.hpp"
#include "numeric/gemm/uncertain.hpp"

namespace potl::numeric::conv {

namespace {

// norm() of rounding.hpp.
double fast_norm(const std::vector<float>& x) {
  const auto terms = static_cast<std::int64_t>(x.size());
  double lanes[norm_lanes] = {};
  detail::active_widening().squares({x.data(), terms, 1, terms, 1}, lanes);
  return norm_of_squares(combine_norm_lanes(lanes), terms);
}

}  // namespace

rounded_results::rounded_results(arithmetic mode, const log64_options& options,
                                 element_operands operands, float* target, const executor& threads)
    : mode_(mode),
      options_(options),
      operands_(std::move(operands)),
      target_(target),
      threads_(threads) {}

double rounded_results::factor(std::int64_t terms) const noexcept {
  return mode_ == arithmetic::cr32 ? error_factor(terms) : 2 * error_factor(terms);
}

std::int64_t rounded_results::round_some(const area& part, std::int64_t* places) const {
  constexpr std::int64_t most = 16 * 64;
  detail::place found[most];
  detail::rounding r;
  r.sums = part.sums;
  r.sums_row = part.sums_row;
  r.row_bound = part.row_bounds;
  r.column_norm = part.column_bounds;
  r.y = part.y;
  r.y_row = part.y_row;
  r.rows = part.rows;
  r.columns = part.columns;
  r.bits = options_.bits;
  const std::int64_t count = detail::active_widening().round(r, found);
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    // An infinity or NaN is the same in any order.
    if (!std::isfinite(part.sums[found[i].row * part.sums_row + found[i].column])) continue;
    places[2 * kept] = found[i].row;
    places[2 * kept + 1] = found[i].column;
    ++kept;
  }
  return kept;
}

void rounded_results::keep(const std::vector<doubtful>& some) {
  constexpr std::size_t most_kept = std::size_t{1} << 14;
  std::vector<doubtful> many;
  {
    const std::lock_guard lock(guard_);
    kept_.insert(kept_.end(), some.begin(), some.end());
    if (kept_.size() >= most_kept) many.swap(kept_);
  }
  if (!many.empty()) settle(many, inline_executor());
}

void rounded_results::settle(const std::vector<doubtful>& some, const executor& threads) {
  const std::size_t tasks = std::min(some.size(), 4 * threads.concurrency());
  threads.run(tasks, [&](std::size_t task) {
    std::vector<float> a, b;
    const std::size_t end = some.size() * (task + 1) / tasks;
    for (std::size_t i = some.size() * task / tasks; i < end; ++i) {
      const auto index = static_cast<std::uint64_t>(some[i].index);
      operands_(index, a, b);
      const auto terms = static_cast<std::int64_t>(a.size());
      const dot_operands operands{terms, a.data(), 1, b.data(), 1};
      const double norm_a = fast_norm(a), norm_b = fast_norm(b);
      if (mode_ == arithmetic::cr32) {
        target_[index] = detail::correctly_rounded(operands, norm_a * norm_b, max_rounding_bits);
        continue;
      }
      const double window = tie_window(terms, norm_a, norm_b);
      const settled_element element =
          detail::settled(some[i].sum, window, options_.bits, operands, norm_a, norm_b);
      target_[index] = element.value;
      if (element.logged) {
        const std::lock_guard lock(guard_);
        ties_.push_back({index, some[i].sum, window});
      }
    }
  });
}

std::vector<near_tie> rounded_results::finish() {
  settle(std::exchange(kept_, {}), threads_);
  std::sort(ties_.begin(), ties_.end(),
            [](const near_tie& a, const near_tie& b) { return a.index < b.index; });
  return std::move(ties_);
}

}  // namespace potl::numeric::conv

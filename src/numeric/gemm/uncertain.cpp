// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "numeric/gemm/modes.hpp"
#include "numeric/gemm/uncertain.hpp"

namespace potl::numeric::detail {
namespace {

/// sum + low is the exact sum but for less than 2^-100 terms^2 |a| |b|; exactly if `exact`.
struct near_sum {
  double sum = 0;
  double low = 0;
  bool exact = true;
};

// sum + what it lost, exactly (Knuth).
double two_sum(double a, double b, double& lost) noexcept {
  const double sum = a + b;
  const double part = sum - a;
  lost = (a - (sum - part)) + (b - part);
  return sum;
}

near_sum sum_products(const dot_operands& operands) noexcept {
  twofold lanes;
  active_widening().products({operands.a, 0, operands.a_stride, operands.terms, 1},
                             {operands.b, 0, operands.b_stride, operands.terms, 1}, lanes);
  near_sum out;
  out.exact = lanes.exact;
  for (int lane = 0; lane < twofold::lanes; ++lane) {
    double lost = 0;
    out.sum = two_sum(out.sum, lanes.sum[lane], lost);
    out.exact = out.exact && lost == 0;
    out.low += lost + lanes.low[lane];
  }
  return out;
}

using settle_body = std::function<void(const unsettled&, const dot_operands&)>;

constexpr std::int64_t ahead = 32;                           // rows of B
constexpr std::int64_t columns_together = 16;                // a cache line of a row of B
constexpr std::int64_t most_copied = std::int64_t{1} << 18;  // elements of B

// Elements of up to 16 adjacent columns, in order of the columns. Where columns lie apart, a cache
// line holds elements of all of them: they are copied together, and each line is fetched once.
void settle_group(const unsettled* begin, const unsettled* end, const matrix<const float>& a,
                  const matrix<const float>& b, std::vector<float>& copies,
                  const settle_body& settle) {
  const std::int64_t terms = a.columns;
  std::vector<std::int64_t> wanted;
  for (const unsettled* one = begin; one != end; ++one) {
    if (wanted.empty() || wanted.back() != one->column) wanted.push_back(one->column);
  }
  const auto count = static_cast<std::int64_t>(wanted.size());
  const bool copied = b.row_stride != 1 && end - begin > 1 && count * terms <= most_copied;
  if (copied) {
    copies.resize(static_cast<std::size_t>(count * terms));
    for (std::int64_t k = 0; k < terms; k += ahead) {
      const std::int64_t stop = std::min(terms, k + ahead);
      // Rows lie pages apart, which no processor fetches by itself.
      for (std::int64_t i = stop; i < std::min(terms, stop + ahead); ++i) {
        __builtin_prefetch(&b(i, wanted.front()));
      }
      for (std::int64_t j = 0; j < count; ++j) {
        const float* from = &b(0, wanted[static_cast<std::size_t>(j)]);
        float* to = copies.data() + j * terms;
        for (std::int64_t i = k; i < stop; ++i) to[i] = from[i * b.row_stride];
      }
    }
  }
  const float* copy = copies.data();
  std::int64_t at = begin->column;
  for (const unsettled* one = begin; one != end; ++one) {
    if (one->column != at) copy += terms;
    at = one->column;
    dot_operands operands = operands_of(*one, a, b);
    if (copied) {
      operands.b = copy;
      operands.b_stride = 1;
    }
    settle(*one, operands);
  }
}

}  // namespace

void settle_together(std::vector<unsettled> elements, const matrix<const float>& a,
                     const matrix<const float>& b, const executor& threads,
                     const settle_body& settle) {
  std::sort(elements.begin(), elements.end(), [](const unsettled& x, const unsettled& y) {
    return x.column != y.column ? x.column < y.column : x.row < y.row;
  });
  std::vector<std::size_t> groups;  // where each begins
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i == 0 ||
        elements[i].column / columns_together != elements[i - 1].column / columns_together) {
      groups.push_back(i);
    }
  }
  groups.push_back(elements.size());
  const std::size_t count = groups.size() - 1;
  const std::size_t tasks = std::min(count, 4 * threads.concurrency());
  threads.run(tasks, [&](std::size_t task) {
    std::vector<float> copies;
    for (std::size_t g = count * task / tasks; g < count * (task + 1) / tasks; ++g) {
      settle_group(elements.data() + groups[g], elements.data() + groups[g + 1], a, b, copies,
                   settle);
    }
  });
}

float correctly_rounded(const dot_operands& operands, double norms, int bits) noexcept {
  const near_sum value = sum_products(operands);
  if (value.exact) return round_to(value.sum, bits);
  // Additions to `low` round at most terms + 20 times, each by 2^-53 of at most
  // (terms + 20) 2^-53 |a| |b|; 2^-100 leaves a factor of 64.
  const double terms = static_cast<double>(operands.terms) + 20;
  const double error = 0x1p-100 * terms * terms * norms;
  const tie near = nearest_tie(value.sum, bits);
  const float small = std::signbit(value.sum) ? near.upper : near.lower;
  const float large = std::signbit(value.sum) ? near.lower : near.upper;
  const double middle = std::fabs(near.midpoint);
  const double half_step = middle - std::fabs(static_cast<double>(small));
  // How far the exact size lies beyond the tie; the first difference is exact where it is small.
  const double low = std::signbit(value.sum) ? -value.low : value.low;
  const double side = (std::fabs(value.sum) - middle) + low;
  const bool between = std::fabs(low) + error < 0.25 * half_step;
  if (!between || !(std::fabs(side) > error + 0x1p-50 * std::fabs(side))) {
    return exact_dot(operands, bits);
  }
  return (side > 0 ? large : small) + 0.0F;
}

bool is_near_tie(double x, double window, int bits, const dot_operands& operands, double norm_a,
                 double norm_b) noexcept {
  if (classify(x, window, bits) != tie_class::near) return false;
  constexpr std::int64_t few = 8;
  for (std::int64_t terms = 1; terms <= std::min(few, operands.terms); terms *= 2) {
    const double quantum_a = quantum(operands.a, terms, operands.a_stride);
    const double quantum_b = quantum(operands.b, terms, operands.b_stride);
    if (!sum_is_exact(norm_a, norm_b, quantum_a, quantum_b)) return true;
  }
  return false;
}

settled_element settled(double x, double window, int bits, const dot_operands& operands,
                        double norm_a, double norm_b) noexcept {
  if (is_near_tie(x, window, bits, operands, norm_a, norm_b)) return {round_to(x, bits), true};
  if (classify(x, window, bits) == tie_class::exact)
    return {correctly_rounded(operands, norm_a * norm_b, bits), false};
  return settle(x, window, bits, operands);
}

}  // namespace potl::numeric::detail

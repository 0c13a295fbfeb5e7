// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "numeric/gemm/uncertain.hpp"

namespace potl::numeric::detail {
namespace {

/// sum + low is the exact sum but for less than 2^-100 terms^2 |a| |b|; exactly if `exact`.
struct twofold {
  double sum = 0;
  double low = 0;
  bool exact = true;
};

constexpr int lanes = 8;
constexpr std::int64_t strip = 256;

// sum + what it lost, exactly (Knuth).
double two_sum(double a, double b, double& lost) noexcept {
  const double sum = a + b;
  const double part = sum - a;
  lost = (a - (sum - part)) + (b - part);
  return sum;
}

// Lanes of their own for every eighth product, so that they run side by side; each product is exact
// in double, each lane keeps what its additions lose.
twofold sum_products(const dot_operands& operands) noexcept {
  double sum[lanes] = {}, low[lanes] = {};
  bool exact = true;
  for (std::int64_t begin = 0; begin < operands.terms; begin += strip) {
    const std::int64_t count = std::min(strip, operands.terms - begin);
    // Copied first: columns lie far apart, and nothing waits for a load here.
    double product[strip] = {};
    for (std::int64_t k = 0; k < count; ++k) {
      product[k] = static_cast<double>(operands.a[(begin + k) * operands.a_stride]) *
                   static_cast<double>(operands.b[(begin + k) * operands.b_stride]);
    }
    double any[lanes] = {};
    for (std::int64_t k = 0; k < count; k += lanes) {
      for (int lane = 0; lane < lanes; ++lane) {
        double lost = 0;
        sum[lane] = two_sum(sum[lane], product[k + lane], lost);
        low[lane] += lost;
        any[lane] += std::fabs(lost);
      }
    }
    for (const double one : any) exact = exact && one == 0;
  }
  twofold out;
  for (int lane = 0; lane < lanes; ++lane) {
    double lost = 0;
    out.sum = two_sum(out.sum, sum[lane], lost);
    exact = exact && lost == 0;
    out.low += lost + low[lane];
  }
  out.exact = exact;
  return out;
}

}  // namespace

dot_operands operands_of(const matrix<const float>& a, const matrix<const float>& b, std::int64_t i,
                         std::int64_t j) noexcept {
  return {a.columns, a.data + i * a.row_stride, a.column_stride, b.data + j * b.column_stride,
          b.row_stride};
}

float correctly_rounded(const dot_operands& operands, double norms) noexcept {
  const twofold value = sum_products(operands);
  if (value.exact) return round_to(value.sum, max_rounding_bits);
  // Additions to `low` round at most terms + 20 times, each by 2^-53 of at most
  // (terms + 20) 2^-53 |a| |b|; 2^-100 leaves a factor of 64.
  const double terms = static_cast<double>(operands.terms) + 20;
  const double error = 0x1p-100 * terms * terms * norms;
  const tie near = nearest_tie(value.sum, max_rounding_bits);
  const float small = std::signbit(value.sum) ? near.upper : near.lower;
  const float large = std::signbit(value.sum) ? near.lower : near.upper;
  const double middle = std::fabs(near.midpoint);
  const double half_step = middle - std::fabs(static_cast<double>(small));
  // How far the exact size lies beyond the tie; the first difference is exact where it is small.
  const double low = std::signbit(value.sum) ? -value.low : value.low;
  const double side = (std::fabs(value.sum) - middle) + low;
  const bool between = std::fabs(low) + error < 0.25 * half_step;
  if (!between || !(std::fabs(side) > error + 0x1p-50 * std::fabs(side))) {
    return exact_dot(operands, max_rounding_bits);
  }
  return (side > 0 ? large : small) + 0.0F;
}

settled_element settled(double x, double window, int bits, const dot_operands& operands,
                        double norm_a, double norm_b) noexcept {
  if (classify(x, window, bits) == tie_class::near) {
    // A few terms mostly show that sums of these operands are not exact.
    constexpr std::int64_t few = 8;
    const std::int64_t terms = std::min(few, operands.terms);
    const double quantum_a = quantum(operands.a, terms, operands.a_stride);
    const double quantum_b = quantum(operands.b, terms, operands.b_stride);
    if (!sum_is_exact(norm_a, norm_b, quantum_a, quantum_b)) return {round_to(x, bits), true};
  }
  return settle(x, window, bits, operands);
}

}  // namespace potl::numeric::detail

// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/exact_sum.hpp>

#include <bit>
#include <cmath>

namespace potl::numeric {

void exact_sum::add(double x) noexcept {
  if (!std::isfinite(x)) {
    special_ += x;
    return;
  }
  if (x == 0) return;
  const auto word = std::bit_cast<std::uint64_t>(x);
  const int exponent = static_cast<int>((word >> 52) & 0x7ff) - 1075;
  std::uint64_t significand = (word & 0xfffffffffffffULL) | 0x10000000000000ULL;
  const int zeros = std::countr_zero(significand);
  significand >>= zeros;
  add_scaled(significand, exponent + zeros, std::signbit(x));
}

int exact_sum::sign() const noexcept {
  if (special_ != 0) return special_ > 0 ? 1 : special_ < 0 ? -1 : 0;
  const exact_sum value = settled();
  if (value.digit_.back() < 0) return -1;
  for (const std::int64_t digit : value.digit_) {
    if (digit != 0) return 1;
  }
  return 0;
}

bool exact_sum::is_within(double centre, double radius) const noexcept {
  if (special_ != 0 || !std::isfinite(centre) || !(radius >= 0)) return false;
  if (std::isinf(radius)) return true;
  exact_sum below = *this;  // value - centre - radius <= 0
  below.add(-centre);
  exact_sum above = below;  // value - centre + radius >= 0
  below.add(-radius);
  above.add(radius);
  return below.sign() <= 0 && above.sign() >= 0;
}

exact_sum exact_dot(const dot_operands& operands) noexcept {
  exact_sum out;
  for (std::int64_t k = 0; k < operands.terms; ++k) {
    out.add_product(operands.a[k * operands.a_stride], operands.b[k * operands.b_stride]);
  }
  return out;
}

double exact_window(const dot_operands& operands) noexcept {
  const auto& [terms, a, a_stride, b, b_stride] = operands;
  const double norm_a = norm(a, terms, a_stride);
  const double norm_b = norm(b, terms, b_stride);
  const double window = tie_window(terms, norm_a, norm_b);
  if (!std::isfinite(window)) return window;
  const bool exact =
      sum_is_exact(norm_a, norm_b, quantum(a, terms, a_stride), quantum(b, terms, b_stride));
  return exact ? 0.0 : window;
}

settled_element settle(double x, double window, int bits, const dot_operands& operands) noexcept {
  switch (classify(x, window, bits)) {
    case tie_class::clear: return {round_to(x, bits), false};
    case tie_class::exact: return {exact_dot(operands, bits), false};
    case tie_class::near: break;
  }
  return {round_to(x, bits), exact_window(operands) != 0};
}

}  // namespace potl::numeric

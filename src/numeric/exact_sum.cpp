// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/exact_sum.hpp>

#include <bit>
#include <cmath>
#include <limits>

namespace potl::numeric {
namespace {

constexpr std::uint64_t digit_mask = 0xffffffffU;

}  // namespace

void exact_sum::add_scaled(std::uint64_t significand, int exponent, bool negative) noexcept {
  const int shift = exponent - lowest;
  const auto at = static_cast<std::size_t>(shift >> 5);
  const int within = shift & 31;
  // 64 bits shifted by at most 31 fill three digits.
  const std::uint64_t low = significand << within;
  const std::uint64_t high = within == 0 ? 0 : significand >> (64 - within);
  const std::int64_t sign = negative ? -1 : 1;
  digit_[at] += sign * static_cast<std::int64_t>(low & digit_mask);
  digit_[at + 1] += sign * static_cast<std::int64_t>(low >> 32);
  digit_[at + 2] += sign * static_cast<std::int64_t>(high);
  if (++unsettled_ == 1U << 29) settle();
}

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

void exact_sum::add_product(float a, float b) noexcept {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  if (product == 0) return;
  if (!std::isfinite(product)) {
    special_ += product;
    return;
  }
  const auto word = std::bit_cast<std::uint64_t>(product);
  add_scaled((word & 0xfffffffffffffULL) | 0x10000000000000ULL,
             static_cast<int>((word >> 52) & 0x7ff) - 1075, std::signbit(product));
}

void exact_sum::settle() noexcept {
  std::int64_t carry = 0;
  for (std::size_t i = 0; i + 1 < digits; ++i) {
    const std::int64_t sum = digit_[i] + carry;
    carry = sum >> 32;  // arithmetic: rounds towards minus infinity
    digit_[i] = sum & static_cast<std::int64_t>(digit_mask);
  }
  digit_[digits - 1] += carry;
  unsettled_ = 0;
}

exact_sum exact_sum::settled() const noexcept {
  exact_sum out = *this;
  out.settle();
  return out;
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

double exact_sum::to_odd() const noexcept {
  if (special_ != 0) return special_;
  exact_sum value = settled();
  const bool negative = value.digit_.back() < 0;
  if (negative) {
    for (std::int64_t& digit : value.digit_) digit = -digit;
    value.settle();
  }
  int top = digits - 1;
  while (top >= 0 && value.digit_[static_cast<std::size_t>(top)] == 0) --top;
  if (top < 0) return 0;
  const auto digit = [&](int i) {
    return i < 0 ? 0 : static_cast<std::uint64_t>(value.digit_[static_cast<std::size_t>(i)]);
  };
  // The leading bit and 63 more.
  const int width = 64 - std::countl_zero(digit(top));
  std::uint64_t lead = digit(top) << (64 - width);
  int filled = width;
  int at = top - 1;
  bool rest = false;
  while (filled < 64 && at >= 0) {
    const int take = 64 - filled - 32;
    lead |= take >= 0 ? digit(at) << take : digit(at) >> -take;
    if (take < 0) rest = (digit(at) & ((std::uint64_t{1} << -take) - 1)) != 0;
    filled += 32;
    --at;
  }
  for (; at >= 0; --at) rest = rest || digit(at) != 0;
  rest = rest || (lead & 0x7ff) != 0;
  const std::uint64_t significand = (lead >> 11) | (rest ? 1U : 0U);
  const int exponent = lowest + 32 * top + width - 53;
  const double size = std::ldexp(static_cast<double>(significand), exponent);
  return negative ? -size : size;
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

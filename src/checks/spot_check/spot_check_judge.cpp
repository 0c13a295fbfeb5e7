// SPDX-License-Identifier: Apache-2.0
#include <potl/checks/detail/spot_check_judge.hpp>

#include <cmath>
#include <limits>

namespace potl::checks {
namespace {

// As torch.nn.utils.clip_grad_norm_ has it, which divides by a little more than the norm.
double clip_factor(double norm, double clip) noexcept {
  return std::min(1.0, clip / (norm + 1e-6));
}

// Scales at which a common direction is looked for: tolerance, half of it, a quarter, ...
constexpr int scales = 24;

/// Eight sums with a name each: they do not wait for each other, and stay in registers, which an
/// array without optimization does not.
struct eight_sums {
  double a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;

  /// Adds the squares of value(0), value(1), ..., each of which is asked for once and in order.
  template <class Value>
  void add_squares(std::size_t count, const Value& value) noexcept {
    const auto square = [&](std::size_t at) {
      const double one = value(at);
      return one * one;
    };
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      a += square(i);
      b += square(i + 1);
      c += square(i + 2);
      d += square(i + 3);
      e += square(i + 4);
      f += square(i + 5);
      g += square(i + 6);
      h += square(i + 7);
    }
    for (; i < count; ++i) a += square(i);
  }
  double total() const noexcept { return ((a + b) + (c + d)) + ((e + f) + (g + h)); }
};

template <class Value>
double sum_of_squares(std::size_t count, const Value& value) noexcept {
  eight_sums sums;
  sums.add_squares(count, value);
  return sums.total();
}

}  // namespace

double gradient_norm(std::span<const float> gradient) noexcept {
  gradient_norm_sum sum;
  sum.add(gradient);
  return sum.norm();
}

void gradient_norm_sum::add(std::span<const float> part) noexcept {
  auto [a, b, c, d, e, f, g, h] = sums_;
  eight_sums sums{a, b, c, d, e, f, g, h};
  sums.add_squares(part.size(), [&](std::size_t at) { return double{part[at]}; });
  sums_ = {sums.a, sums.b, sums.c, sums.d, sums.e, sums.f, sums.g, sums.h};
}

double gradient_norm_sum::norm() const noexcept {
  const auto& [a, b, c, d, e, f, g, h] = sums_;
  return std::sqrt(eight_sums{a, b, c, d, e, f, g, h}.total());
}

gradient_distance compare_gradients(std::span<const float> reported, std::span<const float> own,
                                    std::span<const spot_check_tensor> tensors, double clip) {
  const double a = clip_factor(gradient_norm(reported), clip);
  const double b = clip_factor(gradient_norm(own), clip);
  gradient_distance out;
  double sum = 0, largest = -1;
  std::size_t at = 0;
  for (const spot_check_tensor& tensor : tensors) {
    const double part = sum_of_squares(tensor.elements, [&](std::size_t i) {
      return a * double{reported[at + i]} - b * double{own[at + i]};
    });
    at += tensor.elements;
    // NaN is as far as it gets.
    if (!(part <= largest)) {
      largest = std::isnan(part) ? std::numeric_limits<double>::infinity() : part;
      out.tensor = tensor.name;
    }
    sum += part;
  }
  out.distance = std::sqrt(sum);
  return out;
}

void residual_direction::add(std::span<const float> reported, std::span<const float> own) {
  const double a = clip_factor(gradient_norm(reported), clip_);
  const double b = clip_factor(gradient_norm(own), clip_);
  sum_.resize(reported.size());
  squares_ += sum_of_squares(reported.size(), [&](std::size_t i) {
    const double difference = a * double{reported[i]} - b * double{own[i]};
    sum_[i] += difference;
    return difference;
  });
  ++count_;
}

double residual_direction::bias() const noexcept {
  const double sum = sum_of_squares(sum_.size(), [&](std::size_t i) { return sum_[i]; });
  return count_ == 0 ? 0 : std::sqrt(sum) / static_cast<double>(count_);
}

// For symmetric residuals of sum S and sum of squares V, cosh(lambda |S|) exp(-lambda^2 V / 2) is a
// supermartingale that begins at 1, and so is a mean of such; by Ville's inequality it exceeds
// 1 / false_alarm with probability false_alarm at most, at any time. cosh x >= exp(x) / 2.
double residual_direction::evidence() const noexcept {
  const double length = bias() * static_cast<double>(count_);
  double best = -std::numeric_limits<double>::infinity();
  double lambda = tolerance_ > 0 ? 1 / tolerance_ : 0;
  for (int scale = 0; scale < scales; ++scale, lambda *= 2) {
    best = std::max(best, lambda * length - lambda * lambda * squares_ / 2);
  }
  return best - std::log(2.0 * scales);
}

double residual_direction::evidence_needed() noexcept { return -std::log(false_alarm); }

}  // namespace potl::checks

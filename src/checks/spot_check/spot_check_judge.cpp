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

}  // namespace

double gradient_norm(std::span<const float> gradient) noexcept {
  gradient_norm_sum sum;
  sum.add(gradient);
  return sum.norm();
}

void gradient_norm_sum::add(std::span<const float> part) noexcept {
  const auto square = [&](std::size_t at) { return double{part[at]} * double{part[at]}; };
  // Eight sums with a name each stay in registers, which an array without optimization does not.
  auto [a, b, c, d, e, f, g, h] = sums_;
  std::size_t i = 0;
  for (; i + 8 <= part.size(); i += 8) {
    a += square(i);
    b += square(i + 1);
    c += square(i + 2);
    d += square(i + 3);
    e += square(i + 4);
    f += square(i + 5);
    g += square(i + 6);
    h += square(i + 7);
  }
  for (; i < part.size(); ++i) a += square(i);
  sums_ = {a, b, c, d, e, f, g, h};
}

double gradient_norm_sum::norm() const noexcept {
  const auto& [a, b, c, d, e, f, g, h] = sums_;
  return std::sqrt(((a + b) + (c + d)) + ((e + f) + (g + h)));
}

gradient_distance compare_gradients(std::span<const float> reported, std::span<const float> own,
                                    std::span<const spot_check_tensor> tensors, double clip) {
  const double a = clip_factor(gradient_norm(reported), clip);
  const double b = clip_factor(gradient_norm(own), clip);
  gradient_distance out;
  double sum = 0, largest = -1;
  std::size_t at = 0;
  for (const spot_check_tensor& tensor : tensors) {
    double part = 0;
    for (const std::size_t end = at + tensor.elements; at < end; ++at) {
      const double difference = a * double{reported[at]} - b * double{own[at]};
      part += difference * difference;
    }
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
  double square = 0;
  for (std::size_t i = 0; i < reported.size(); ++i) {
    const double difference = a * double{reported[i]} - b * double{own[i]};
    sum_[i] += difference;
    square += difference * difference;
  }
  squares_ += square;
  ++count_;
}

double residual_direction::bias() const noexcept {
  double sum = 0;
  for (const double one : sum_) sum += one * one;
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

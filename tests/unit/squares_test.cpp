// SPDX-License-Identifier: Apache-2.0
#include "catch.hpp"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <potl/numeric/detail/squares.hpp>

using namespace potl;

namespace {

template <class Element>
bytes_view bytes_of(const std::vector<Element>& values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(Element)};
}

}  // namespace

TEST_CASE("squares are not below zero, in no place and no part of a complex number") {
  std::vector<float> values(1001, 1.0f);
  values[3] = -0.0f;
  values[4] = std::nanf("");
  CHECK(numeric::why_no_squares(dtype::f32, bytes_of(values)) == nullptr);
  CHECK(numeric::why_no_squares(dtype::f32, {}) == nullptr);
  values[1000] = -1e-45f;
  CHECK(std::string(numeric::why_no_squares(dtype::f32, bytes_of(values))).find("negative") !=
        std::string::npos);
  CHECK(numeric::why_no_squares(dtype::c64, bytes_of<float>({1, 0, 1, -1})) != nullptr);
}

TEST_CASE("a running variance is one of squares unless it extrapolates or begins below zero") {
  const std::vector<float> fine{0, 2}, wrong{1, -1};
  for (const double momentum : {0.0, 0.1, 1.0}) {
    CHECK(numeric::averages_squares(momentum, dtype::f32, bytes_of(fine)));
  }
  CHECK(numeric::averages_squares(std::nullopt, dtype::f32, bytes_of(fine)));
  for (const double momentum : {-0.1, 1.1, std::nan("")}) {
    CHECK_FALSE(numeric::averages_squares(momentum, dtype::f32, bytes_of(fine)));
  }
  CHECK_FALSE(numeric::averages_squares(0.1, dtype::f32, bytes_of(wrong)));
}

TEST_CASE("moments that steps made are never too large, nor shrink too far") {
  const auto law = numeric::law_of_moments(0.9, 0.999, false);
  CHECK(std::sqrt(law.most) == Approx(7.27).epsilon(1e-3));
  CHECK(law.kept == 0.999);
  const auto of_roots = numeric::law_of_moments(0.9, 0.999, true);
  CHECK(of_roots.most == Approx(1.0182).epsilon(1e-4));
  CHECK(of_roots.kept == Approx(0.999 * 0.999));
  // Gradients that come as close to the bound as any, then none.
  std::vector<float> mean(600), square(600), mean_before, square_before;
  constexpr int steps = 5;
  for (int step = 0; step < 400; ++step) {
    if (step % steps == 0) mean_before = mean, square_before = square;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      const double scale = std::pow(10.0, static_cast<double>(i % 30) - 12);
      const double gradient = step < 200 ? scale * std::pow(0.999 / 0.9, step - 200) : 0;
      mean[i] = static_cast<float>(0.9 * mean[i] + 0.1 * gradient);
      square[i] = static_cast<float>(0.999 * square[i] + 0.001 * gradient * gradient);
    }
    if (step % steps != steps - 1) continue;
    CHECK_FALSE(numeric::are_no_steps(dtype::f32, {bytes_of(mean_before), bytes_of(square_before)},
                                      {bytes_of(mean), bytes_of(square)}, law, steps));
  }
  // The last of more than one block of them.
  const auto forged = [&](float by, float shrunk, std::uint64_t in_steps = 5) {
    auto means = mean, squares = square;
    squares[599] = shrunk * square_before[599];
    means[599] = by * std::sqrt(squares[599]);
    return numeric::are_no_steps(dtype::f32, {bytes_of(mean_before), bytes_of(square_before)},
                                 {bytes_of(means), bytes_of(squares)}, law, in_steps);
  };
  CHECK(forged(-15, 1));
  CHECK_FALSE(forged(-14, 1));
  CHECK(forged(0, 0.24f));
  CHECK_FALSE(forged(0, 0.24f, 100));
}

TEST_CASE("shares that bound nothing forbid nothing") {
  for (const auto& [means, squares] : {std::pair{0.99, 0.9}, {0.9, 1.0}, {0.9, std::nan("")}}) {
    CHECK(std::isinf(numeric::law_of_moments(means, squares, false).most));
  }
  CHECK(numeric::law_of_moments(0.9, std::nan(""), false).kept == 0);
  CHECK(numeric::law_of_moments(0.9, 2, false).kept == 0);
}

TEST_CASE("squares that half precision rounds to 0 may be gone") {
  const auto forged = [](double share, std::uint16_t before, bool are_roots = false) {
    const std::vector<std::uint16_t> means{0}, squares{before}, none{0};
    return numeric::are_no_steps(dtype::f16, {bytes_of(means), bytes_of(squares)},
                                 {bytes_of(means), bytes_of(none)},
                                 numeric::law_of_moments(0.1, share, are_roots), 1);
  };
  // Half of the smallest number, 2^-24, is rounded to 0.
  for (const bool are_roots : {false, true}) CHECK_FALSE(forged(0.5, 1, are_roots));
  CHECK_FALSE(forged(0.5, 8));
  CHECK(forged(0.5, 9));
  CHECK_FALSE(forged(0.5, 4, true));
  CHECK(forged(0.5, 5, true));
  CHECK(forged(0.999, 5));
}

TEST_CASE("squares that half precision rounds to 0 say nothing of a mean") {
  // 0.001 times the square of 0.005 is less than half of 2^-24.
  const std::uint16_t five_thousandths = 0x1d1f, tenth = 0x2e66, one = 0x3c00, zero = 0;
  const auto law = numeric::law_of_moments(0.9, 0.999, false);
  const auto forged = [&](std::uint16_t mean, std::uint16_t square) {
    const std::vector<std::uint16_t> means{mean}, squares{square};
    return numeric::are_no_steps(dtype::f16, {}, {bytes_of(means), bytes_of(squares)}, law, 5);
  };
  CHECK_FALSE(forged(five_thousandths, zero));
  CHECK(forged(tenth, zero));
  CHECK_FALSE(forged(one, one));
  CHECK(forged(one, 0x1400));  // 2^-10
  // In single precision there is next to nothing that is lost.
  const std::vector<float> mean{0.005f}, square{0};
  CHECK(numeric::are_no_steps(dtype::f32, {}, {bytes_of(mean), bytes_of(square)}, law, 5));
}

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <span>
#include <vector>

#include <potl/cuda/elementwise.hpp>

#include "catch.hpp"
#include "device_memory.hpp"
#include "numeric_levels.hpp"

using namespace potl;
using numeric::gradient;
using numeric::unary;

namespace {

TEST_CASE("functions of elements have the CPU's bits on a device", "[gpu]") {
  const auto check = [&]<class Real>(const std::vector<Real>& x) {
    const test::device_memory<Real> there(x), result(x);
    std::vector<Real> wanted(x.size());
    for (int i = 0; i <= static_cast<int>(unary::mish); ++i) {
      const auto function = static_cast<unary>(i);
      if (function == unary::erfinv) continue;
      INFO(to_string(function));
      cuda::apply(function, there.data(), result.data(), x.size(), nullptr);
      numeric::apply(function, std::span<const Real>(x), std::span<Real>(wanted),
                     numeric::inline_executor());
      CHECK(test::same_bits(result.read(), wanted));
    }
  };
  check(test::hostile<float>(4'000'000, 11));
  check(test::hostile<double>(1'000'000, 12));
}

TEST_CASE("derivatives have the CPU's bits on a device", "[gpu][small]") {
  const auto x = test::hostile<float>(1'000'000, 13);
  auto dy = test::hostile<float>(1'000'000, 14);
  std::reverse(dy.begin(), dy.end());
  const test::device_memory<float> x_there(x), dy_there(dy), result(x);
  std::vector<float> wanted(x.size());
  for (int i = 0; i <= static_cast<int>(gradient::mish); ++i) {
    const auto function = static_cast<gradient>(i);
    INFO(to_string(function));
    cuda::apply(function, dy_there.data(), x_there.data(), result.data(), x.size(), nullptr);
    numeric::apply(function, std::span<const float>(dy), x, wanted, numeric::inline_executor());
    CHECK(test::same_bits(result.read(), wanted));
  }
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <vector>

#include <potl/cuda/elementwise.hpp>

#include "catch.hpp"
#include "numeric_levels.hpp"

namespace {

using potl::numeric::unary;

/// How many results differ.
template <class Real>
std::size_t differences(unary function, const std::vector<Real>& x) {
  std::vector<Real> here(x.size()), there(x.size());
  apply(function, std::span<const Real>(x), std::span<Real>(here),
        potl::numeric::inline_executor());
  potl::cuda::apply_from_host(function, x.data(), there.data(), x.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (potl::test::bits(here[i]) != potl::test::bits(there[i])) ++count;
  return count;
}

TEST_CASE("functions of elements have the CPU's bits on a device", "[gpu]") {
  const auto floats = potl::test::hostile<float>(4'000'000, 11);
  const auto doubles = potl::test::hostile<double>(1'000'000, 12);
  for (int i = 0; i <= static_cast<int>(unary::mish); ++i) {
    const auto function = static_cast<unary>(i);
    if (function == unary::erfinv) continue;
    INFO(to_string(function));
    CHECK(differences(function, floats) == 0);
    CHECK(differences(function, doubles) == 0);
  }
}

}  // namespace

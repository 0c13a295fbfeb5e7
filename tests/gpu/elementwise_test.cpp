// SPDX-License-Identifier: Apache-2.0
// The bits of a CUDA device against those of the CPU. Exit status 77 where there is no device.
#include <cstdio>
#include <span>
#include <vector>

#include <potl/cuda/elementwise.hpp>

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

}  // namespace

int main() {
  if (!potl::cuda::has_device()) {
    std::puts("skipped: this machine has no CUDA device, or no driver for it");
    return 77;
  }
  const auto floats = potl::test::hostile<float>(4'000'000, 11);
  const auto doubles = potl::test::hostile<double>(1'000'000, 12);
  bool same = true;
  for (int i = 0; i <= static_cast<int>(unary::mish); ++i) {
    const auto function = static_cast<unary>(i);
    if (function == unary::erfinv) continue;
    const std::size_t wrong = differences(function, floats);
    const std::size_t wrong_doubles = differences(function, doubles);
    std::printf("%-12s %zu of %zu float32 and %zu of %zu float64 results differ\n",
                to_string(function), wrong, floats.size(), wrong_doubles, doubles.size());
    same = same && wrong == 0 && wrong_doubles == 0;
  }
  return same ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace potl::numeric::fourier_detail {

/// Complex numbers, real and imaginary parts apart.
struct numbers {
  explicit numbers(std::size_t count) : re(count), im(count) {}
  std::vector<double> re, im;
};

/// exp(-2 pi i k / n) for 0 <= k < n.
void set_root(std::int64_t k, std::int64_t n, double& re, double& im);

/// All n roots, in order.
numbers roots_of_unity(std::int64_t n);

}  // namespace potl::numeric::fourier_detail

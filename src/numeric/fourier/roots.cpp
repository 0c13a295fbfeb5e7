// SPDX-License-Identifier: Apache-2.0
#include "roots.hpp"

#include <potl/numeric/elementwise.hpp>

namespace potl::numeric::fourier_detail {

void set_root(std::int64_t k, std::int64_t n, double& re, double& im) {
  constexpr double pi = 0x1.921fb54442d18p+1;
  const std::int64_t quarter = 4 * k / n;
  const std::int64_t rest = 4 * k - quarter * n;
  const bool is_beyond = 2 * rest > n;  // the second octant mirrors the first
  const std::int64_t part = is_beyond ? n - rest : rest;
  const double angle = pi * static_cast<double>(part) / static_cast<double>(2 * n);
  const double near = exact_cos(angle), far = exact_sin(angle);
  const double cosine = is_beyond ? far : near, sine = is_beyond ? near : far;
  switch (quarter) {
    case 0: re = cosine, im = -sine; break;
    case 1: re = -sine, im = -cosine; break;
    case 2: re = -cosine, im = sine; break;
    default: re = sine, im = cosine; break;
  }
}

numbers roots_of_unity(std::int64_t n) {
  const auto count = static_cast<std::size_t>(n);
  numbers out(count);
  const std::size_t quarter = count % 4 == 0 ? count / 4 : count;
  for (std::size_t k = 0; k < count; ++k) {
    if (k >= quarter) {
      out.re[k] = out.im[k - quarter];
      out.im[k] = -out.re[k - quarter];
    } else if (2 * k <= count && (quarter == count || 2 * k <= quarter)) {
      set_root(static_cast<std::int64_t>(k), n, out.re[k], out.im[k]);
    } else if (quarter < count) {
      out.re[k] = -out.im[quarter - k];
      out.im[k] = -out.re[quarter - k];
    } else {
      out.re[k] = out.re[count - k];
      out.im[k] = -out.im[count - k];
    }
  }
  return out;
}

}  // namespace potl::numeric::fourier_detail

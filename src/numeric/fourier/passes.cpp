// SPDX-License-Identifier: Apache-2.0
#include "passes.hpp"

#include <array>
#include <utility>

namespace potl::numeric::fourier_detail {
namespace {

/// Factors in the order of the passes; what is left of the length is not 1 where it has others.
std::int64_t take_factors(std::int64_t length, std::vector<std::int64_t>& factors) {
  for (const std::int64_t factor : {4, 2, 3, 5, 7, 11, 13}) {
    while (length % factor == 0) {
      factors.push_back(factor);
      length /= factor;
    }
  }
  return length;
}

/// The transforms of `Radix` runs of `width` numbers, `from` apart, each times its root.
template <std::size_t Radix>
struct butterfly {
  std::array<const double*, Radix> x_re, x_im;
  std::array<double*, Radix> y_re, y_im;
  std::array<double, Radix> root_re, root_im;  ///< of the results, the first is 1
  std::array<double, Radix> own_re, own_im;    ///< the roots of unity of the radix

  void put(std::size_t k, std::size_t i, double re, double im) const {
    y_re[k][i] = re * root_re[k] - im * root_im[k];
    y_im[k][i] = re * root_im[k] + im * root_re[k];
  }

  void run(std::size_t width) const {
#pragma GCC ivdep
    for (std::size_t i = 0; i < width; ++i) one(i);
  }

  void one(std::size_t i) const {
    if constexpr (Radix == 2) {
      y_re[0][i] = x_re[0][i] + x_re[1][i];
      y_im[0][i] = x_im[0][i] + x_im[1][i];
      put(1, i, x_re[0][i] - x_re[1][i], x_im[0][i] - x_im[1][i]);
    } else if constexpr (Radix == 4) {
      const double even_re = x_re[0][i] + x_re[2][i], even_im = x_im[0][i] + x_im[2][i];
      const double odd_re = x_re[1][i] + x_re[3][i], odd_im = x_im[1][i] + x_im[3][i];
      const double left_re = x_re[0][i] - x_re[2][i], left_im = x_im[0][i] - x_im[2][i];
      const double turned_re = x_im[1][i] - x_im[3][i], turned_im = x_re[3][i] - x_re[1][i];
      y_re[0][i] = even_re + odd_re;
      y_im[0][i] = even_im + odd_im;
      put(1, i, left_re + turned_re, left_im + turned_im);
      put(2, i, even_re - odd_re, even_im - odd_im);
      put(3, i, left_re - turned_re, left_im - turned_im);
    } else {
      constexpr std::size_t half = Radix / 2;
      std::array<double, half> sum_re, sum_im, difference_re, difference_im;
      double all_re = x_re[0][i], all_im = x_im[0][i];
      for (std::size_t j = 0; j < half; ++j) {
        sum_re[j] = x_re[j + 1][i] + x_re[Radix - 1 - j][i];
        sum_im[j] = x_im[j + 1][i] + x_im[Radix - 1 - j][i];
        difference_re[j] = x_re[j + 1][i] - x_re[Radix - 1 - j][i];
        difference_im[j] = x_im[j + 1][i] - x_im[Radix - 1 - j][i];
        all_re += sum_re[j];
        all_im += sum_im[j];
      }
      for (std::size_t k = 1; k <= half; ++k) {
        double common_re = x_re[0][i], common_im = x_im[0][i], apart_re = 0, apart_im = 0;
        for (std::size_t j = 0; j < half; ++j) {
          const std::size_t at = (j + 1) * k % Radix;
          common_re += own_re[at] * sum_re[j];
          common_im += own_re[at] * sum_im[j];
          apart_re -= own_im[at] * difference_im[j];
          apart_im += own_im[at] * difference_re[j];
        }
        put(k, i, common_re + apart_re, common_im + apart_im);
        put(Radix - k, i, common_re - apart_re, common_im - apart_im);
      }
      y_re[0][i] = all_re;
      y_im[0][i] = all_im;
    }
  }
};

/// One pass of Stockham's algorithm: transforms of n = Radix m numbers, `stride` of them side by
/// side, become such of m numbers, Radix stride side by side.
template <std::size_t Radix>
void pass(std::int64_t m, std::int64_t stride, std::int64_t lanes, const numbers& roots,
          const numbers& x, numbers& y) {
  const auto step = static_cast<std::size_t>(stride);
  const auto width = static_cast<std::size_t>(stride * lanes);
  const auto rest = static_cast<std::size_t>(m);
  butterfly<Radix> with;
  for (std::size_t k = 0; k < Radix; ++k) {
    with.own_re[k] = roots.re[k * rest * step];
    with.own_im[k] = roots.im[k * rest * step];
  }
  for (std::size_t p = 0; p < rest; ++p) {
    for (std::size_t k = 0; k < Radix; ++k) {
      with.x_re[k] = x.re.data() + width * (p + rest * k);
      with.x_im[k] = x.im.data() + width * (p + rest * k);
      with.y_re[k] = y.re.data() + width * (Radix * p + k);
      with.y_im[k] = y.im.data() + width * (Radix * p + k);
      with.root_re[k] = roots.re[p * k * step];
      with.root_im[k] = roots.im[p * k * step];
    }
    with.run(width);
  }
}

}  // namespace

bool passes::suit(std::int64_t length) {
  std::vector<std::int64_t> factors;
  return take_factors(length, factors) == 1;
}

passes::passes(std::int64_t length) : length_(length), roots_(roots_of_unity(length)) {
  take_factors(length, factors_);
}

void passes::run(std::int64_t lanes, numbers& x, numbers& other) const {
  std::int64_t left = length_, stride = 1;
  for (const std::int64_t factor : factors_) {
    left /= factor;
    const auto go = [&](auto pass_of) { pass_of(left, stride, lanes, roots_, x, other); };
    switch (factor) {
      case 2: go(pass<2>); break;
      case 3: go(pass<3>); break;
      case 4: go(pass<4>); break;
      case 5: go(pass<5>); break;
      case 7: go(pass<7>); break;
      case 11: go(pass<11>); break;
      default: go(pass<13>); break;
    }
    std::swap(x, other);
    stride *= factor;
  }
}

}  // namespace potl::numeric::fourier_detail

// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/fourier.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include <potl/core/error.hpp>

#include "numeric/ranges.hpp"
#include "passes.hpp"

namespace potl::numeric {
namespace {

using fourier_detail::numbers;
using fourier_detail::passes;

std::int64_t power_of_two_from(std::int64_t least) {
  std::int64_t out = 1;
  while (out < least) out *= 2;
  return out;
}

/// Memory of one thread.
struct scratch {
  scratch(std::int64_t length, std::int64_t lanes)
      : x(static_cast<std::size_t>(length * lanes)), other(x.re.size()) {}
  numbers x, other;
};

/// Bluestein: j k = (j^2 + k^2 - (k - j)^2) / 2 makes a transform of any length a convolution.
class chirp {
 public:
  static constexpr std::int64_t longest = std::int64_t{1} << 24;

  explicit chirp(std::int64_t length)
      : size_(power_of_two_from(2 * length - 1)),
        passes_(size_),
        factors_(static_cast<std::size_t>(length)),
        filter_(static_cast<std::size_t>(size_)) {
    const auto count = static_cast<std::size_t>(length);
    const auto size = static_cast<std::size_t>(size_);
    for (std::size_t j = 0; j < count; ++j) {
      const auto square = static_cast<std::int64_t>(j * j % (2 * count));
      fourier_detail::set_root(square, 2 * length, factors_.re[j], factors_.im[j]);
      for (const std::size_t at : {j, (size - j) % size}) {
        filter_.re[at] = factors_.re[j];
        filter_.im[at] = -factors_.im[j];
      }
    }
    numbers other(size);
    passes_.run(1, filter_, other);
  }

  std::int64_t size() const { return size_; }

  void run(std::int64_t lanes, scratch& of) const {
    const auto width = static_cast<std::size_t>(lanes);
    multiply(factors_, width, of.x);
    const auto used = static_cast<std::ptrdiff_t>(factors_.re.size() * width);
    std::fill(of.x.re.begin() + used, of.x.re.end(), 0.0);
    std::fill(of.x.im.begin() + used, of.x.im.end(), 0.0);
    passes_.run(lanes, of.x, of.other);
    multiply(filter_, width, of.x);
    // Backward, and 1 / size, which is a power of two.
    std::swap(of.x.re, of.x.im);
    passes_.run(lanes, of.x, of.other);
    std::swap(of.x.re, of.x.im);
    const double scale = 1.0 / static_cast<double>(size_);
    for (auto* part : {&of.x.re, &of.x.im}) {
      for (double& value : *part) value *= scale;
    }
    multiply(factors_, width, of.x);
  }

 private:
  /// Line by line, the first numbers of x times those of `by`.
  static void multiply(const numbers& by, std::size_t width, numbers& x) {
    for (std::size_t k = 0; k < by.re.size(); ++k) {
      for (std::size_t at = k * width; at < (k + 1) * width; ++at) {
        const double re = x.re[at], im = x.im[at];
        x.re[at] = re * by.re[k] - im * by.im[k];
        x.im[at] = re * by.im[k] + im * by.re[k];
      }
    }
  }

  std::int64_t size_;
  passes passes_;
  numbers factors_;
  numbers filter_;  ///< transformed
};

/// Passes where they suit, else a chirp.
class any_length {
 public:
  /// `asked` is the length that an error names.
  any_length(std::int64_t length, std::int64_t asked) : size_(length) {
    if (passes::suit(length)) {
      plain_.emplace(length);
    } else if (length > chirp::longest) {
      throw exception({errc::unsupported,
                       "a Fourier transform of " + std::to_string(asked) +
                           " elements, which is no product of 2, 3, 5, 7, 11 and 13, would take "
                           "more than 2 GiB",
                       "give n= a length that is such a product, or at most 2^24"});
    } else {
      size_ = other_.emplace(length).size();
    }
  }

  std::int64_t size() const { return size_; }

  void run(std::int64_t lanes, scratch& of) const {
    plain_ ? plain_->run(lanes, of.x, of.other) : other_->run(lanes, of);
  }

 private:
  std::int64_t size_;
  std::optional<passes> plain_;
  std::optional<chirp> other_;
};

/// An even number n of real numbers is n / 2 complex ones, z[j] = x[2j] + x[2j + 1] i: from their
/// transform to half of the spectrum of x, and back before the transform to z. With
/// E = Z[k] + conj(Z[n / 2 - k]) and D = Z[k] - conj(Z[n / 2 - k]), X[k] = (E - i W^k D) / 2; back
/// it is E + i W^k D of X. What is at n / 2 - k is the conjugate with the other sign.
class folding {
 public:
  explicit folding(std::int64_t length)
      : half_(length / 2), roots_(fourier_detail::roots_of_unity(length)) {}

  void run(bool to_real, bool backward, std::int64_t lanes, std::vector<double>& re,
           std::vector<double>& im) const {
    const auto width = static_cast<std::size_t>(lanes);
    const auto row = [&](std::int64_t k) { return static_cast<std::size_t>(k) * width; };
    if (!to_real) {
      std::copy_n(re.begin(), width, re.begin() + static_cast<std::ptrdiff_t>(row(half_)));
      std::copy_n(im.begin(), width, im.begin() + static_cast<std::ptrdiff_t>(row(half_)));
    }
    const double scale = to_real ? 1.0 : 0.5, sign = to_real ? -scale : scale;
    for (std::int64_t k = 0; 2 * k <= half_; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const double root_re = roots_.re[at], root_im = backward ? -roots_.im[at] : roots_.im[at];
      double *const re_k = &re[row(k)], *const im_k = &im[row(k)];
      double *const re_m = &re[row(half_ - k)], *const im_m = &im[row(half_ - k)];
      for (std::size_t i = 0; i < width; ++i) {
        const double sum_re = scale * (re_k[i] + re_m[i]), sum_im = scale * (im_k[i] - im_m[i]);
        const double off_re = re_k[i] - re_m[i], off_im = im_k[i] + im_m[i];
        const double turned_re = sign * (root_re * off_im + root_im * off_re);
        const double turned_im = sign * (root_im * off_im - root_re * off_re);
        re_k[i] = sum_re + turned_re;
        im_k[i] = sum_im + turned_im;
        re_m[i] = sum_re - turned_re;
        im_m[i] = turned_im - sum_im;
      }
    }
  }

 private:
  std::int64_t half_;
  numbers roots_;
};

template <class Real>
Real rounded(double value) {
  return value == value ? static_cast<Real>(value) : std::numeric_limits<Real>::quiet_NaN();
}

/// Lines of `count` numbers each, of `parts` parts.
struct side {
  std::int64_t count, inner, parts;

  /// Where number j of a line lies.
  std::int64_t at(std::int64_t line, std::int64_t j) const {
    return parts * ((line / inner * count + j) * inner + line % inner);
  }
  std::int64_t step() const { return parts * inner; }
};

template <class Real>
void load(const side& from, fourier_kind kind, bool folds, const Real* x, std::int64_t line,
          std::int64_t lane, std::int64_t lanes, std::int64_t length, std::vector<double>& re,
          std::vector<double>& im) {
  const Real* number = x + from.at(line, 0);
  if (kind == fourier_kind::from_real && folds) {
    for (std::int64_t j = 0; 2 * j < length; ++j, number += 2 * from.step()) {
      const auto to = static_cast<std::size_t>(j * lanes + lane);
      re[to] = number[0];
      im[to] = number[from.step()];
    }
    return;
  }
  for (std::int64_t j = 0; j < from.count; ++j, number += from.step()) {
    const auto to = static_cast<std::size_t>(j * lanes + lane);
    re[to] = number[0];
    im[to] = from.parts == 2 ? number[1] : 0;
    if (kind != fourier_kind::to_real) continue;
    if (j == 0 || 2 * j == length) {
      im[to] = 0;
    } else if (!folds) {
      const auto mirror = static_cast<std::size_t>((length - j) * lanes + lane);
      re[mirror] = re[to];
      im[mirror] = -im[to];
    }
  }
}

template <class Real>
void store(const side& to, bool is_folded, Real* number, std::int64_t lane, std::int64_t lanes,
           double factor, const std::vector<double>& re, const std::vector<double>& im) {
  const std::int64_t count = is_folded ? to.count / 2 : to.count;
  for (std::int64_t k = 0; k < count; ++k, number += to.step()) {
    const auto at = static_cast<std::size_t>(k * lanes + lane);
    number[0] = rounded<Real>(re[at] * factor);
    if (is_folded) {
      number += to.step();
      number[0] = rounded<Real>(im[at] * factor);
    } else if (to.parts == 2) {
      number[1] = rounded<Real>(im[at] * factor);
    }
  }
}

constexpr std::int64_t longest_together = std::int64_t{1} << 20;

template <class In, class Out>
void transform(const fourier_shape& shape, fourier_kind kind, bool backward, double factor,
               const In* x, Out* y, const executor& workers) {
  constexpr std::int64_t longest = std::int64_t{1} << 30;
  if (shape.outer < 0 || shape.inner < 0 || shape.length < 1 || shape.length > longest) {
    throw exception({errc::usage, "a Fourier transform of this length does not exist here",
                     "transform 1 to 2^30 elements"});
  }
  const std::int64_t lines = shape.outer * shape.inner, half = shape.length / 2 + 1;
  if (lines == 0) return;
  const side from{kind == fourier_kind::to_real ? half : shape.length, shape.inner,
                  kind == fourier_kind::from_real ? 1 : 2};
  const side to{kind == fourier_kind::from_real ? half : shape.length, shape.inner,
                kind == fourier_kind::to_real ? 1 : 2};
  const bool folds = kind != fourier_kind::complex && shape.length % 2 == 0;
  const bool to_real = kind == fourier_kind::to_real;
  const any_length by(folds ? shape.length / 2 : shape.length, shape.length);
  std::optional<folding> fold;
  if (folds) fold.emplace(shape.length);
  // The memory of each thread is 32 bytes times the size: of long lines, one thread at a time.
  const executor& those = by.size() > longest_together ? inline_executor() : workers;
  // Several lines at once fill vectors, as long as they fit a cache.
  const std::int64_t most = by.size() <= 256 ? 8 : 1;
  const std::int64_t blocks = (lines + most - 1) / most;
  for_ranges(those, blocks, 16 * by.size() * most, [&](std::int64_t begin, std::int64_t end) {
    std::optional<scratch> memory;
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * most;
      const std::int64_t lanes = std::min(most, lines - first);
      if (!memory || lanes < most) memory.emplace(by.size() + 1, lanes);
      numbers& z = memory->x;
      auto& re = backward ? z.im : z.re;
      auto& im = backward ? z.re : z.im;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        load(from, kind, folds, x, first + lane, lane, lanes, shape.length, re, im);
      }
      if (fold && to_real) fold->run(true, backward, lanes, re, im);
      by.run(lanes, *memory);
      if (fold && !to_real) fold->run(false, backward, lanes, re, im);
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        store(to, to_real && folds, y + to.at(first + lane, 0), lane, lanes, factor, re, im);
      }
    }
  });
}

}  // namespace

void fourier(const fourier_shape& shape, fourier_kind kind, bool backward, double factor,
             const float* x, float* y, const executor& workers) {
  transform(shape, kind, backward, factor, x, y, workers);
}
void fourier(const fourier_shape& shape, fourier_kind kind, bool backward, double factor,
             const float* x, double* y, const executor& workers) {
  transform(shape, kind, backward, factor, x, y, workers);
}
void fourier(const fourier_shape& shape, fourier_kind kind, bool backward, double factor,
             const double* x, float* y, const executor& workers) {
  transform(shape, kind, backward, factor, x, y, workers);
}
void fourier(const fourier_shape& shape, fourier_kind kind, bool backward, double factor,
             const double* x, double* y, const executor& workers) {
  transform(shape, kind, backward, factor, x, y, workers);
}

}  // namespace potl::numeric

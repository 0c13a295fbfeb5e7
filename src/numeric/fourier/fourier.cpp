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
  explicit any_length(std::int64_t length) : size_(length) {
    if (passes::suit(length)) {
      plain_.emplace(length);
    } else if (length > chirp::longest) {
      throw exception({errc::unsupported,
                       "a Fourier transform of " + std::to_string(length) +
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
void load(const side& from, bool is_half, const Real* x, std::int64_t line, std::int64_t lane,
          std::int64_t lanes, std::int64_t length, std::vector<double>& re,
          std::vector<double>& im) {
  const Real* number = x + from.at(line, 0);
  for (std::int64_t j = 0; j < from.count; ++j, number += from.step()) {
    const auto to = static_cast<std::size_t>(j * lanes + lane);
    re[to] = number[0];
    im[to] = from.parts == 2 ? number[1] : 0;
    if (!is_half) continue;
    if (j == 0 || 2 * j == length) {
      im[to] = 0;
    } else {
      const auto mirror = static_cast<std::size_t>((length - j) * lanes + lane);
      re[mirror] = re[to];
      im[mirror] = -im[to];
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
  const any_length by(shape.length);
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
      if (!memory || lanes < most) memory.emplace(by.size(), lanes);
      numbers& z = memory->x;
      auto& re = backward ? z.im : z.re;
      auto& im = backward ? z.re : z.im;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        load(from, kind == fourier_kind::to_real, x, first + lane, lane, lanes, shape.length, re,
             im);
      }
      by.run(lanes, *memory);
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        Out* number = y + to.at(first + lane, 0);
        for (std::int64_t k = 0; k < to.count; ++k, number += to.step()) {
          const auto at = static_cast<std::size_t>(k * lanes + lane);
          number[0] = rounded<Out>(re[at] * factor);
          if (to.parts == 2) number[1] = rounded<Out>(im[at] * factor);
        }
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

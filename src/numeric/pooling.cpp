// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/pooling.hpp>

#include <algorithm>

#include <potl/core/error.hpp>

#include "numeric/ranges.hpp"

namespace potl::numeric {
namespace {

std::int64_t product(const std::array<std::int64_t, 3>& sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

std::int64_t outputs(const average_pool& of) {
  return static_cast<std::int64_t>(of.windows[0].size() * of.windows[1].size() *
                                   of.windows[2].size());
}

void require(const average_pool& of) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (const pool_window& window : of.windows[axis]) {
      if (window.begin < 0 || window.end > of.input[axis]) {
        throw exception({errc::usage, "a pooling window lies outside its input", ""});
      }
    }
  }
  if (of.planes < 0 || of.channels < 0)
    throw exception({errc::usage, "a shape with a negative size", ""});
}

/// body(windows along three axes, divisor), outputs in ascending order.
template <class Real, class Body>
void for_outputs(const average_pool& of, const Body& body) {
  for (const pool_window& depth : of.windows[0]) {
    for (const pool_window& height : of.windows[1]) {
      for (const pool_window& width : of.windows[2]) {
        const std::int64_t divisor =
            of.divisor ? *of.divisor : depth.extent * height.extent * width.extent;
        body(depth, height, width, static_cast<Real>(divisor));
      }
    }
  }
}

/// Whether nothing is averaged: the divisor may be 0 then.
bool is_empty(const pool_window& depth, const pool_window& height, const pool_window& width) {
  return depth.begin >= depth.end || height.begin >= height.end || width.begin >= width.end;
}

// Channels is 1 or 0, which stands for any number.
template <std::int64_t Channels, class Real>
void forward(const average_pool& of, const Real* x, Real* y, const executor& workers) {
  require(of);
  const std::int64_t channels = Channels == 0 ? of.channels : Channels;
  const std::int64_t plane = product(of.input) * channels;
  const std::int64_t results = outputs(of) * channels;
  for_ranges(workers, of.planes, plane + results, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const Real* from = x + p * plane;
      Real* to = y + p * results;
      for_outputs<Real>(of, [&](const pool_window& depth, const pool_window& height,
                                const pool_window& width, Real divisor) {
        Real one = 0;  // stays in a register
        Real* __restrict sum = Channels == 1 ? &one : to;
        std::fill_n(sum, channels, Real{0});
        for (std::int64_t d = depth.begin; d < depth.end; ++d) {
          for (std::int64_t h = height.begin; h < height.end; ++h) {
            const Real* __restrict row = from + (d * of.input[1] + h) * of.input[2] * channels;
            for (std::int64_t w = width.begin; w < width.end; ++w)
              for (std::int64_t c = 0; c < channels; ++c) sum[c] += row[w * channels + c];
          }
        }
        if (!is_empty(depth, height, width))
          for (std::int64_t c = 0; c < channels; ++c) sum[c] /= divisor;
        if (Channels == 1) *to = one;
        to += channels;
      });
    }
  });
}

template <std::int64_t Channels, class Real>
void backward(const average_pool& of, const Real* dy, Real* dx, const executor& workers) {
  require(of);
  const std::int64_t channels = Channels == 0 ? of.channels : Channels;
  const std::int64_t plane = product(of.input) * channels;
  const std::int64_t results = outputs(of) * channels;
  for_ranges(workers, of.planes, plane + results, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Real> shares(static_cast<std::size_t>(channels));
    Real one = 0;
    Real* const share = Channels == 1 ? &one : shares.data();
    for (std::int64_t p = begin; p < end; ++p) {
      const Real* from = dy + p * results;
      Real* to = dx + p * plane;
      std::fill(to, to + plane, Real{0});
      for_outputs<Real>(of, [&](const pool_window& depth, const pool_window& height,
                                const pool_window& width, Real divisor) {
        for (std::int64_t c = 0; c < channels; ++c) share[c] = *from++ / divisor;
        for (std::int64_t d = depth.begin; d < depth.end; ++d) {
          for (std::int64_t h = height.begin; h < height.end; ++h) {
            Real* __restrict row = to + (d * of.input[1] + h) * of.input[2] * channels;
            for (std::int64_t w = width.begin; w < width.end; ++w)
              for (std::int64_t c = 0; c < channels; ++c) row[w * channels + c] += share[c];
          }
        }
      });
    }
  });
}

}  // namespace

std::vector<pool_window> sliding_windows(std::int64_t inputs, std::int64_t outputs,
                                         std::int64_t kernel, std::int64_t stride,
                                         std::int64_t padding, bool count_padding) {
  std::vector<pool_window> out;
  for (std::int64_t j = 0; j < outputs; ++j) {
    const std::int64_t begin = j * stride - padding;
    const std::int64_t end = std::min(begin + kernel, inputs + padding);
    pool_window one{std::max<std::int64_t>(begin, 0), std::min(end, inputs), 0};
    one.extent = count_padding ? end - begin : one.end - one.begin;
    out.push_back(one);
  }
  return out;
}

std::vector<pool_window> adaptive_windows(std::int64_t inputs, std::int64_t outputs) {
  std::vector<pool_window> out;
  for (std::int64_t j = 0; j < outputs; ++j) {
    const std::int64_t begin = j * inputs / outputs;
    const std::int64_t end = ((j + 1) * inputs + outputs - 1) / outputs;
    out.push_back({begin, end, end - begin});
  }
  return out;
}

void pool(const average_pool& of, const float* x, float* y, const executor& workers) {
  of.channels == 1 ? forward<1>(of, x, y, workers) : forward<0>(of, x, y, workers);
}
void pool(const average_pool& of, const double* x, double* y, const executor& workers) {
  of.channels == 1 ? forward<1>(of, x, y, workers) : forward<0>(of, x, y, workers);
}
void pool_gradient(const average_pool& of, const float* dy, float* dx, const executor& workers) {
  of.channels == 1 ? backward<1>(of, dy, dx, workers) : backward<0>(of, dy, dx, workers);
}
void pool_gradient(const average_pool& of, const double* dy, double* dx, const executor& workers) {
  of.channels == 1 ? backward<1>(of, dy, dx, workers) : backward<0>(of, dy, dx, workers);
}

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// The definition of convolutions: what docs/reference/convolution.md says, one element at a time.
// Other modes than ord32 are those of one dot product, which the tests of gemm define.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/gemm.hpp>

// Indices here are signed throughout.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"

namespace reference {

using potl::numeric::convolution;
using terms = std::vector<std::pair<float, float>>;

/// Rows and columns of the product are the two halves of the terms: one element of a matrix
/// product.
inline float in_mode(potl::numeric::arithmetic mode, const terms& all) {
  using namespace potl::numeric;
  std::vector<float> a, b;
  for (const auto& [left, right] : all) {
    a.push_back(left);
    b.push_back(right);
  }
  float c = -1;
  const auto depth = static_cast<std::int64_t>(all.size());
  gemm(mode, row_major<const float>(a.data(), 1, depth), row_major<const float>(b.data(), depth, 1),
       row_major(&c, 1, 1), inline_executor());
  return c;
}

inline float ord32(const terms& all) {
  float sum = 0;
  for (std::size_t first = 0; first < all.size(); first += 512) {
    float chunk = 0;
    for (std::size_t k = first; k < std::min(first + 512, all.size()); ++k)
      chunk = std::fma(all[k].first, all[k].second, chunk);
    sum = first == 0 ? chunk : sum + chunk;
  }
  return std::isnan(sum) ? std::bit_cast<float>(0x7fc00000U) : sum;
}

inline float value(potl::numeric::arithmetic mode, const terms& all) {
  return mode == potl::numeric::arithmetic::ord32 ? ord32(all) : in_mode(mode, all);
}

using place = std::array<std::int64_t, 3>;

/// Calls each(p) for every place p of a box, the last axis fastest.
template <class Each>
void for_places(const place& sizes, Each each) {
  place p{};
  for (p[0] = 0; p[0] < sizes[0]; ++p[0])
    for (p[1] = 0; p[1] < sizes[1]; ++p[1])
      for (p[2] = 0; p[2] < sizes[2]; ++p[2]) each(std::as_const(p));
}

/// Where a place lies in a box of values; -1 outside of it.
inline std::int64_t index_of(const place& p, const place& sizes) {
  std::int64_t index = 0;
  for (std::size_t a = 0; a < 3; ++a) {
    if (p[a] < 0 || p[a] >= sizes[a]) return -1;
    index = index * sizes[a] + p[a];
  }
  return index;
}

inline std::int64_t count(const place& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

/// The input that tap t reads for output p.
inline place input_of(const convolution& g, const place& p, const place& t) {
  place i{};
  for (std::size_t a = 0; a < 3; ++a)
    i[a] = p[a] * g.stride[a] + t[a] * g.dilation[a] - g.padding[a];
  return i;
}

inline std::vector<float> forward(potl::numeric::arithmetic mode, const convolution& g,
                                  const std::vector<float>& x, const std::vector<float>& w) {
  const auto inner = g.in_channels / g.groups, outer = g.out_channels / g.groups;
  std::vector<float> result;
  terms all;
  for (std::int64_t n = 0; n < g.batch; ++n)
    for (std::int64_t o = 0; o < g.out_channels; ++o)
      for_places(g.output(), [&](const place& p) {
        all.clear();
        auto weight = o * inner * count(g.kernel);
        for (std::int64_t c = 0; c < inner; ++c) {
          const auto channel = (n * g.in_channels + o / outer * inner + c) * count(g.input);
          for_places(g.kernel, [&](const place& t) {
            const auto i = index_of(input_of(g, p, t), g.input);
            all.emplace_back(w[weight++], i < 0 ? 0.0F : x[channel + i]);
          });
        }
        result.push_back(value(mode, all));
      });
  return result;
}

inline std::vector<float> weight_gradient(potl::numeric::arithmetic mode, const convolution& g,
                                          const std::vector<float>& x,
                                          const std::vector<float>& dy) {
  const auto inner = g.in_channels / g.groups, outer = g.out_channels / g.groups;
  std::vector<float> result;
  terms all;
  for (std::int64_t o = 0; o < g.out_channels; ++o)
    for (std::int64_t c = 0; c < inner; ++c)
      for_places(g.kernel, [&](const place& t) {
        all.clear();
        for (std::int64_t n = 0; n < g.batch; ++n) {
          const auto channel = (n * g.in_channels + o / outer * inner + c) * count(g.input);
          auto y = (n * g.out_channels + o) * count(g.output());
          for_places(g.output(), [&](const place& p) {
            const auto i = index_of(input_of(g, p, t), g.input);
            all.emplace_back(dy[y++], i < 0 ? 0.0F : x[channel + i]);
          });
        }
        result.push_back(value(mode, all));
      });
  return result;
}

inline std::vector<float> input_gradient(potl::numeric::arithmetic mode, const convolution& g,
                                         const std::vector<float>& dy,
                                         const std::vector<float>& w) {
  const auto out = g.output();
  const auto inner = g.in_channels / g.groups, outer = g.out_channels / g.groups;
  std::vector<float> result;
  terms all;
  for (std::int64_t n = 0; n < g.batch; ++n)
    for (std::int64_t c = 0; c < g.in_channels; ++c)
      for_places(g.input, [&](const place& i) {
        all.clear();
        for (std::int64_t o = c / inner * outer; o < (c / inner + 1) * outer; ++o) {
          auto weight = (o * inner + c % inner) * count(g.kernel);
          const auto channel = (n * g.out_channels + o) * count(out);
          for_places(g.kernel, [&](const place& t) {
            const auto k = weight++;
            place p{};
            for (std::size_t a = 0; a < 3; ++a) {
              const auto moved = i[a] + g.padding[a] - t[a] * g.dilation[a];
              if (moved % g.stride[a] != 0) return;  // between two outputs
              p[a] = moved / g.stride[a];
            }
            const auto y = index_of(p, out);
            all.emplace_back(w[k], y < 0 ? 0.0F : dy[channel + y]);
          });
        }
        result.push_back(value(mode, all));
      });
  return result;
}

}  // namespace reference

#pragma GCC diagnostic pop

// SPDX-License-Identifier: Apache-2.0
// The definition of convolutions: what docs/reference/convolution.md says, one element at a time.
// Other modes than ord32 are those of one dot product, which the tests of gemm define.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
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

// Visits (n, o, c in the group, output position, tap) with the indices of y, x and w that belong
// together; x is -1 where padding is read.
template <class Visit>
void visit(const convolution& g, Visit each) {
  const auto out = g.output();
  const auto inner = g.in_channels / g.groups, outer = g.out_channels / g.groups;
  for (std::int64_t n = 0; n < g.batch; ++n)
    for (std::int64_t o = 0; o < g.out_channels; ++o)
      for (std::int64_t p = 0; p < out[0] * out[1] * out[2]; ++p)
        for (std::int64_t c = 0; c < inner; ++c)
          for (std::int64_t t = 0; t < g.kernel[0] * g.kernel[1] * g.kernel[2]; ++t) {
            std::int64_t at = 0, rest_p = p, rest_t = t, scale = 1;
            bool inside = true;
            for (int a = 2; a >= 0; --a) {
              const auto i = rest_p % out[a] * g.stride[a] + rest_t % g.kernel[a] * g.dilation[a] -
                             g.padding[a];
              inside = inside && i >= 0 && i < g.input[a];
              at += i * scale;
              scale *= g.input[a];
              rest_p /= out[a];
              rest_t /= g.kernel[a];
            }
            const auto channel = n * g.in_channels + o / outer * inner + c;
            each((n * g.out_channels + o) * out[0] * out[1] * out[2] + p,
                 inside ? channel * scale + at : -1,
                 (o * inner + c) * g.kernel[0] * g.kernel[1] * g.kernel[2] + t);
          }
}

inline std::vector<float> forward(potl::numeric::arithmetic mode, const convolution& g,
                                  const std::vector<float>& x, const std::vector<float>& w,
                                  std::size_t size) {
  std::vector<terms> sums(size);
  visit(g, [&](auto y, auto i, auto k) { sums[y].emplace_back(w[k], i < 0 ? 0.0F : x[i]); });
  std::vector<float> result;
  for (const auto& one : sums) result.push_back(value(mode, one));
  return result;
}

inline std::vector<float> weight_gradient(potl::numeric::arithmetic mode, const convolution& g,
                                          const std::vector<float>& x, const std::vector<float>& dy,
                                          std::size_t size) {
  std::vector<terms> sums(size);
  visit(g, [&](auto y, auto i, auto k) { sums[k].emplace_back(dy[y], i < 0 ? 0.0F : x[i]); });
  std::vector<float> result;
  for (const auto& one : sums) result.push_back(value(mode, one));
  return result;
}

inline std::vector<float> input_gradient(potl::numeric::arithmetic mode, const convolution& g,
                                         const std::vector<float>& dy,
                                         const std::vector<float>& w) {
  const auto out = g.output();
  const auto inner = g.in_channels / g.groups, outer = g.out_channels / g.groups;
  std::vector<float> result;
  for (std::int64_t n = 0; n < g.batch; ++n)
    for (std::int64_t c = 0; c < g.in_channels; ++c)
      for (std::int64_t i = 0; i < g.input[0] * g.input[1] * g.input[2]; ++i) {
        terms all;
        for (std::int64_t o = c / inner * outer; o < (c / inner + 1) * outer; ++o)
          for (std::int64_t t = 0; t < g.kernel[0] * g.kernel[1] * g.kernel[2]; ++t) {
            std::int64_t at = 0, rest_i = i, rest_t = t, scale = 1;
            bool inside = true, tap = true;
            for (int a = 2; a >= 0; --a) {
              const auto moved =
                  rest_i % g.input[a] + g.padding[a] - rest_t % g.kernel[a] * g.dilation[a];
              tap = tap && moved % g.stride[a] == 0;
              inside = inside && moved >= 0 && moved / g.stride[a] < out[a];
              at += moved / g.stride[a] * scale;
              scale *= out[a];
              rest_i /= g.input[a];
              rest_t /= g.kernel[a];
            }
            if (!tap) continue;
            all.emplace_back(
                w[(o * inner + c % inner) * g.kernel[0] * g.kernel[1] * g.kernel[2] + t],
                inside ? dy[(n * g.out_channels + o) * scale + at] : 0.0F);
          }
        result.push_back(value(mode, all));
      }
  return result;
}

}  // namespace reference

#pragma GCC diagnostic pop

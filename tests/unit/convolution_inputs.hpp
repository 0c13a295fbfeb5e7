// SPDX-License-Identifier: Apache-2.0
// Operands and geometries for the tests of convolutions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <potl/numeric/convolution.hpp>

#include "guarded_memory.hpp"

namespace convolutions {

using potl::numeric::convolution;

/// `bfloat16`: what that type holds, the largest fraction often, and a few numbers above it.
enum class inputs { random, huge_range, hostile, bfloat16 };
/// `exact`: of operations that every library and compiler does alike, for digests.
enum class draws { normal, exact };

inline std::vector<float> numbers(std::int64_t count, inputs kind, std::mt19937& generator,
                                  draws from = draws::normal) {
  std::normal_distribution<float> normal;
  const float specials[] = {0.0F,
                            -0.0F,
                            1e-45F,
                            -1e-40F,
                            3e38F,
                            -3e38F,
                            1.0F,
                            -1.0F,
                            1e-20F,
                            -1e-25F,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> all(static_cast<std::size_t>(count));
  for (float& value : all) {
    if (from == draws::normal) {
      value = normal(generator);
    } else {
      const auto first = static_cast<float>(generator() >> 8);
      const auto second = static_cast<float>(generator() >> 8);
      value = (first - second) * 0x1p-23F / static_cast<float>(1 + generator() % 16);
    }
    if (kind == inputs::huge_range)
      value = std::ldexp(value, static_cast<int>(generator() % 200) - 100);
    if (kind == inputs::bfloat16) {
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff0000);
      if (generator() % 4 == 0) value = std::copysign(255.0F / 128, value);
      if (generator() % 16384 == 0) value = 0x1.fffffep0F;
    }
    if (kind == inputs::hostile && generator() % 8 == 0) {
      // Infinities and NaN are rarer, or they would be everywhere in the result.
      const bool rare = generator() % 64 == 0;
      value = specials[rare ? 10 + generator() % 2 : generator() % 10];
    }
  }
  return all;
}

inline std::int64_t size_of(const std::array<std::int64_t, 3>& sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

// With no more multiplications in its forward pass.
inline convolution random_geometry(std::mt19937& generator, std::int64_t most_multiplications) {
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(generator() % static_cast<unsigned>(high - low + 1));
  };
  for (;;) {
    convolution g;
    g.batch = pick(1, 3);
    g.groups = pick(0, 2) == 0 ? pick(1, 5) : 1;
    g.in_channels = g.groups * pick(1, g.groups == 1 ? 40 : 4);
    g.out_channels = g.groups * pick(1, g.groups == 1 ? 40 : 4);
    const auto dimensions = pick(1, 3);
    std::int64_t work = g.batch * g.out_channels * (g.in_channels / g.groups);
    for (auto axis = static_cast<std::size_t>(3 - dimensions); axis < 3; ++axis) {
      const std::int64_t widths[] = {8, 16, 32, pick(1, 40)};
      g.input[axis] = widths[pick(0, 3)];
      g.kernel[axis] = pick(1, 4);
      g.stride[axis] = pick(1, 3);
      g.padding[axis] = pick(0, 3);
      g.dilation[axis] = pick(1, 2);
      work *= g.kernel[axis] * g.input[axis];
      if (g.input[axis] + 2 * g.padding[axis] <= g.dilation[axis] * (g.kernel[axis] - 1)) work = -1;
      if (work < 0) break;
    }
    if (work > 0 && work <= most_multiplications) return g;
  }
}

inline std::string text(const convolution& g) {
  std::string all = "n " + std::to_string(g.batch) + " c " + std::to_string(g.in_channels) + " o " +
                    std::to_string(g.out_channels) + " g " + std::to_string(g.groups);
  for (const auto& [name, sizes] :
       {std::pair("input", g.input), std::pair("kernel", g.kernel), std::pair("stride", g.stride),
        std::pair("padding", g.padding), std::pair("dilation", g.dilation)}) {
    all += std::string(" ") + name;
    for (const auto size : sizes) all += " " + std::to_string(size);
  }
  return all;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

struct operands {
  operands(const convolution& g, inputs kind, std::mt19937& generator, draws from = draws::normal)
      : x(numbers(g.batch * g.in_channels * size_of(g.input), kind, generator, from)),
        w(numbers(g.out_channels * (g.in_channels / g.groups) * size_of(g.kernel), kind, generator,
                  from)),
        dy(numbers(g.batch * g.out_channels * size_of(g.output()), kind, generator, from)) {}
  std::vector<float> x, w, dy;
};

/// What a kernel is given of them.
struct guarded_operands {
  guarded_operands(const operands& from, guarded_end at)
      : x(from.x, at), w(from.w, at), dy(from.dy, at) {}
  const guarded<float> x, w, dy;
};

inline convolution square(std::int64_t batch, std::int64_t in, std::int64_t out, std::int64_t size,
                          std::int64_t kernel, std::int64_t stride, std::int64_t groups = 1) {
  const auto pad = kernel / 2;
  return {batch,
          in,
          out,
          groups,
          {1, size, size},
          {1, kernel, kernel},
          {1, stride, stride},
          {0, pad, pad},
          {1, 1, 1}};
}

}  // namespace convolutions

// SPDX-License-Identifier: Apache-2.0
// Operands and geometries for the tests of convolutions.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <potl/numeric/convolution.hpp>

namespace convolutions {

using potl::numeric::convolution;

enum class inputs { random, huge_range, hostile };

inline std::vector<float> numbers(std::int64_t count, inputs kind, std::mt19937& generator) {
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
    value = normal(generator);
    if (kind == inputs::huge_range)
      value = std::ldexp(value, static_cast<int>(generator() % 200) - 100);
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

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct operands {
  operands(const convolution& g, inputs kind, std::mt19937& generator)
      : x(numbers(g.batch * g.in_channels * size_of(g.input), kind, generator)),
        w(numbers(g.out_channels * (g.in_channels / g.groups) * size_of(g.kernel), kind,
                  generator)),
        dy(numbers(g.batch * g.out_channels * size_of(g.output()), kind, generator)) {}
  std::vector<float> x, w, dy;
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

// SPDX-License-Identifier: Apache-2.0
#include "weight_gradient.hpp"

#include <bit>
#include <cmath>

#include "geometry.hpp"

namespace potl::numeric::conv {
namespace {

// The chain of one element: chunks of 512 terms, added in order.
class chain {
 public:
  void add(float a, float b) noexcept {
    if (terms_ == 512) {
      close();
      terms_ = 0;
      chunk_ = 0.0F;
    }
    chunk_ = std::fma(a, b, chunk_);
    ++terms_;
  }
  float value() noexcept {
    close();
    return std::isnan(sum_) ? std::bit_cast<float>(0x7fc00000U) : sum_;
  }

 private:
  void close() noexcept {
    sum_ = first_ ? chunk_ : sum_ + chunk_;
    first_ = false;
  }
  float chunk_ = 0.0F, sum_ = 0.0F;
  int terms_ = 0;
  bool first_ = true;
};

using index = std::array<std::int64_t, 3>;

template <class Visit>
void for_each(const index& sizes, Visit visit) {
  for (std::int64_t d = 0; d < sizes[0]; ++d)
    for (std::int64_t h = 0; h < sizes[1]; ++h)
      for (std::int64_t w = 0; w < sizes[2]; ++w) visit(index{d, h, w});
}

std::int64_t flat(const index& at, const index& sizes) {
  return (at[0] * sizes[1] + at[1]) * sizes[2] + at[2];
}

float padded(const float* plane, const index& at, const index& sizes) {
  for (std::size_t i = 0; i < 3; ++i)
    if (at[i] < 0 || at[i] >= sizes[i]) return 0.0F;
  return plane[flat(at, sizes)];
}

index source_of(const convolution& g, const index& out, const index& tap) {
  index at{};
  for (std::size_t i = 0; i < 3; ++i)
    at[i] = out[i] * g.stride[i] + tap[i] * g.dilation[i] - g.padding[i];
  return at;
}

}  // namespace

void weight_gradient(const convolution& g, const float* x, const float* dy, float* dw,
                     const kernels&, const executor& threads) {
  const index out = g.output();
  const std::int64_t channels = g.in_channels / g.groups, rows = g.out_channels / g.groups;
  const std::int64_t taps = volume(g.kernel);
  threads.run(static_cast<std::size_t>(g.out_channels * channels), [&](std::size_t task) {
    const std::int64_t o = static_cast<std::int64_t>(task) / channels;
    const std::int64_t c = static_cast<std::int64_t>(task) % channels;
    for_each(g.kernel, [&](const index& t) {
      chain sum;
      for (std::int64_t n = 0; n < g.batch; ++n)
        for_each(out, [&](const index& p) {
          sum.add(dy[(n * g.out_channels + o) * volume(out) + flat(p, out)],
                  padded(x + (n * g.in_channels + o / rows * channels + c) * volume(g.input),
                         source_of(g, p, t), g.input));
        });
      dw[(o * channels + c) * taps + flat(t, g.kernel)] = sum.value();
    });
  });
}

}  // namespace potl::numeric::conv

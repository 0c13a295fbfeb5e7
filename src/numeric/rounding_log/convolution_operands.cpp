// SPDX-License-Identifier: Apache-2.0
#include <potl/numeric/detail/convolution_operands.hpp>

#include <array>
#include <cstddef>

namespace potl::numeric {
namespace {

using place = std::array<std::int64_t, 3>;

std::int64_t volume(const place& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

place unravel(std::int64_t index, const place& sizes) {
  return {index / sizes[2] / sizes[1], index / sizes[2] % sizes[1], index % sizes[2]};
}

/// A plane's element, +0 outside of it.
float read(const float* plane, const place& sizes, const place& at) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (at[i] < 0 || at[i] >= sizes[i]) return 0.0F;
  }
  return plane[(at[0] * sizes[1] + at[1]) * sizes[2] + at[2]];
}

/// What result position p reads through a tap.
place seen(const convolution& g, const place& p, const place& tap) {
  place at{};
  for (std::size_t i = 0; i < 3; ++i) {
    at[i] = p[i] * g.stride[i] + tap[i] * g.dilation[i] - g.padding[i];
  }
  return at;
}

/// The result position that reads input position i through a tap; false: the tap belongs to another
/// phase of the stride and is not a term.
bool reader(const convolution& g, const place& i, const place& tap, place& p) {
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t moved = i[d] + g.padding[d] - tap[d] * g.dilation[d];
    if (moved % g.stride[d] != 0) return false;
    p[d] = moved / g.stride[d];
  }
  return true;
}

}  // namespace

element_operands convolution_operands(const convolution& geometry, const float* x, const float* w) {
  return [g = geometry, out = geometry.output(), x, w](std::uint64_t index, std::vector<float>& a,
                                                       std::vector<float>& b) {
    const std::int64_t at = static_cast<std::int64_t>(index), places = volume(out);
    const std::int64_t taps = volume(g.kernel), inner = g.in_channels / g.groups;
    const std::int64_t o = at / places % g.out_channels, n = at / places / g.out_channels;
    const std::int64_t first = o / (g.out_channels / g.groups) * inner;
    const place p = unravel(at % places, out);
    a.clear();
    b.clear();
    for (std::int64_t c = 0; c < inner; ++c) {
      const float* plane = x + (n * g.in_channels + first + c) * volume(g.input);
      for (std::int64_t t = 0; t < taps; ++t) {
        a.push_back(w[(o * inner + c) * taps + t]);
        b.push_back(read(plane, g.input, seen(g, p, unravel(t, g.kernel))));
      }
    }
  };
}

element_operands input_gradient_operands(const convolution& geometry, const float* dy,
                                         const float* w) {
  return [g = geometry, out = geometry.output(), dy, w](std::uint64_t index, std::vector<float>& a,
                                                        std::vector<float>& b) {
    const std::int64_t at = static_cast<std::int64_t>(index), places = volume(g.input);
    const std::int64_t taps = volume(g.kernel), inner = g.in_channels / g.groups;
    const std::int64_t rows = g.out_channels / g.groups;
    const std::int64_t c = at / places % g.in_channels, n = at / places / g.in_channels;
    const place i = unravel(at % places, g.input);
    a.clear();
    b.clear();
    for (std::int64_t o = c / inner * rows; o < (c / inner + 1) * rows; ++o) {
      const float* plane = dy + (n * g.out_channels + o) * volume(out);
      for (std::int64_t t = 0; t < taps; ++t) {
        place p{};
        if (!reader(g, i, unravel(t, g.kernel), p)) continue;
        a.push_back(w[(o * inner + c % inner) * taps + t]);
        b.push_back(read(plane, out, p));
      }
    }
  };
}

element_operands weight_gradient_operands(const convolution& geometry, const float* x,
                                          const float* dy) {
  return [g = geometry, out = geometry.output(), x, dy](std::uint64_t index, std::vector<float>& a,
                                                        std::vector<float>& b) {
    const std::int64_t at = static_cast<std::int64_t>(index), places = volume(out);
    const std::int64_t taps = volume(g.kernel), inner = g.in_channels / g.groups;
    const std::int64_t o = at / taps / inner;
    const std::int64_t c = o / (g.out_channels / g.groups) * inner + at / taps % inner;
    const place tap = unravel(at % taps, g.kernel);
    a.clear();
    b.clear();
    for (std::int64_t n = 0; n < g.batch; ++n) {
      const float* plane = x + (n * g.in_channels + c) * volume(g.input);
      for (std::int64_t p = 0; p < places; ++p) {
        a.push_back(dy[(n * g.out_channels + o) * places + p]);
        b.push_back(read(plane, g.input, seen(g, unravel(p, out), tap)));
      }
    }
  };
}

}  // namespace potl::numeric

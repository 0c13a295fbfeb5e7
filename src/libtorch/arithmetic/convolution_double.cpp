// SPDX-License-Identifier: Apache-2.0
#include "convolution_double.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <ATen/ops/as_strided.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "products.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;
using triple = std::array<std::int64_t, 3>;

/// x [n, c, d, h, w] on a canvas of zeros: `step` apart, `before` from its beginning (which may be
/// negative: what lies outside is cut off).
Tensor on_canvas(const Tensor& x, const triple& canvas, const triple& step, const triple& before) {
  Tensor out = at::zeros({x.size(0), x.size(1), canvas[0], canvas[1], canvas[2]}, x.options());
  Tensor from = x;
  Tensor to = out;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    const std::int64_t first = before[i] >= 0 ? 0 : (-before[i] + step[i] - 1) / step[i];
    const std::int64_t start = before[i] + first * step[i];
    const std::int64_t room = canvas[i] > start ? (canvas[i] - start + step[i] - 1) / step[i] : 0;
    const std::int64_t count =
        std::clamp<std::int64_t>(room, 0, std::max<std::int64_t>(0, x.size(dim) - first));
    if (count == 0) return out;
    from = from.narrow(dim, first, count);
    to = to.slice(dim, start, start + (count - 1) * step[i] + 1, step[i]);
  }
  to.copy_(from);
  return out;
}

/// All windows of a contiguous canvas: [n, c, kd, kh, kw, od, oh, ow], a view.
Tensor windows(const Tensor& canvas, const triple& kernel, const triple& dilation,
               const triple& stride, const triple& places) {
  std::vector<std::int64_t> sizes{canvas.size(0), canvas.size(1)};
  std::vector<std::int64_t> strides{canvas.stride(0), canvas.stride(1)};
  for (std::size_t i = 0; i < 3; ++i) {
    sizes.push_back(kernel[i]);
    strides.push_back(canvas.stride(static_cast<std::int64_t>(i) + 2) * dilation[i]);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    sizes.push_back(places[i]);
    strides.push_back(canvas.stride(static_cast<std::int64_t>(i) + 2) * stride[i]);
  }
  return at::as_strided(canvas, sizes, strides);
}

std::int64_t volume(const triple& sizes) { return sizes[0] * sizes[1] * sizes[2]; }

/// [n, c, d, h, w] as [n, c, places].
Tensor five(const Tensor& x, std::int64_t channels, const triple& spatial) {
  return x.reshape({x.size(0), channels, spatial[0], spatial[1], spatial[2]});
}

/// x with its padding, [n, c, d, h, w].
Tensor padded_input(const numeric::convolution& shape, const Tensor& x) {
  triple canvas{};
  for (std::size_t i = 0; i < 3; ++i) canvas[i] = shape.input[i] + 2 * shape.padding[i];
  return on_canvas(five(x, shape.in_channels, shape.input), canvas, {1, 1, 1}, shape.padding);
}

}  // namespace

Tensor double_convolution(const numeric::convolution& shape, const Tensor& x, const Tensor& w,
                          at::IntArrayRef sizes) {
  const triple places = shape.output();
  const Tensor padded = padded_input(shape, x);
  const std::int64_t inputs = shape.in_channels / shape.groups;
  const std::int64_t outputs = shape.out_channels / shape.groups;
  const std::int64_t terms = inputs * volume(shape.kernel);
  std::vector<Tensor> parts;
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    const Tensor seen = windows(padded.narrow(1, group * inputs, inputs), shape.kernel,
                                shape.dilation, shape.stride, places)
                            .reshape({shape.batch, terms, volume(places)});
    const Tensor weights = w.narrow(0, group * outputs, outputs).reshape({1, outputs, terms});
    parts.push_back(product("convolution", weights.expand({shape.batch, outputs, terms}), seen));
  }
  return at::cat(parts, 1).reshape(sizes);
}

Tensor double_input_gradient(const numeric::convolution& shape, const Tensor& dy, const Tensor& w,
                             at::IntArrayRef sizes) {
  const triple places = shape.output();
  triple canvas{};
  triple before{};
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t reach = shape.dilation[i] * (shape.kernel[i] - 1);
    canvas[i] = shape.input[i] + reach;
    before[i] = reach - shape.padding[i];
  }
  const Tensor stuffed =
      on_canvas(five(dy, shape.out_channels, places), canvas, shape.stride, before);
  const std::int64_t inputs = shape.in_channels / shape.groups;
  const std::int64_t outputs = shape.out_channels / shape.groups;
  const std::int64_t terms = outputs * volume(shape.kernel);
  const Tensor taps =
      w.reshape({shape.out_channels, inputs, shape.kernel[0], shape.kernel[1], shape.kernel[2]})
          .flip({2, 3, 4});
  std::vector<Tensor> parts;
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    const Tensor seen = windows(stuffed.narrow(1, group * outputs, outputs), shape.kernel,
                                shape.dilation, {1, 1, 1}, shape.input)
                            .reshape({shape.batch, terms, volume(shape.input)});
    const Tensor weights =
        taps.narrow(0, group * outputs, outputs).transpose(0, 1).reshape({1, inputs, terms});
    parts.push_back(
        product("convolution_backward", weights.expand({shape.batch, inputs, terms}), seen));
  }
  return at::cat(parts, 1).reshape(sizes);
}

Tensor double_weight_gradient(const numeric::convolution& shape, const Tensor& x, const Tensor& dy,
                              at::IntArrayRef sizes) {
  const triple places = shape.output();
  const Tensor padded = padded_input(shape, x);
  const std::int64_t inputs = shape.in_channels / shape.groups;
  const std::int64_t outputs = shape.out_channels / shape.groups;
  const std::int64_t terms = shape.batch * volume(places);
  const Tensor gradients =
      dy.reshape({shape.batch, shape.out_channels, volume(places)}).transpose(0, 1);
  std::vector<Tensor> parts;
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    const Tensor seen = windows(padded.narrow(1, group * inputs, inputs), shape.kernel,
                                shape.dilation, shape.stride, places)
                            .permute({0, 5, 6, 7, 1, 2, 3, 4})
                            .reshape({terms, inputs * volume(shape.kernel)});
    parts.push_back(product("convolution_backward",
                            gradients.narrow(0, group * outputs, outputs).reshape({outputs, terms}),
                            seen));
  }
  return at::cat(parts, 0).reshape(sizes);
}

}  // namespace potl::libtorch::dispatch

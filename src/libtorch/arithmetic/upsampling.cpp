// SPDX-License-Identifier: Apache-2.0
// Interpolation, and gradients of interpolation, of borders and of unfolded windows.
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/WrapDimMinimal.h>

#include <potl/numeric/detail/resampling.hpp>

#include "device.hpp"
#include "real.hpp"
#include "registrar.hpp"
#include "turning.hpp"

namespace potl::libtorch::dispatch {
namespace {

using numeric::resize;
using numeric::tap_table;

/// numeric::resample() on a device, which gets a copy of the table.
void resample_there(const tap_table& table, std::int64_t outer, std::int64_t inner,
                    const at::Tensor& x, const at::Tensor& y) {
  const auto sent = [&](const auto& values, c10::ScalarType type) {
    return at::tensor(values, at::TensorOptions(type)).to(x.device());
  };
  const at::Tensor first = sent(table.first, at::kLong);
  const at::Tensor positions = sent(table.positions, at::kLong);
  const at::Tensor weights = sent(table.weights, at::kFloat);
  const device_call there(x);
  there->resample(
      {outer, table.inputs, table.outputs(), inner, first.const_data_ptr<std::int64_t>(),
       positions.const_data_ptr<std::int64_t>(), weights.const_data_ptr<float>()},
      x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), there.queue());
}

/// One dimension after the other, the last one first; gradients the first one first, with the
/// transposed tables.
at::Tensor resampled(const char* name, const at::Tensor& input, std::vector<tap_table> tables,
                     bool is_gradient) {
  const c10::ScalarType type = compute_type(name, input.scalar_type());
  const auto dims = static_cast<std::int64_t>(tables.size());
  // With channels last the places lie in the same order, each with all of its channels.
  const bool is_last = dims == input.dim() - 2 && !is_on_device(input) &&
                       input.suggest_memory_format() != at::MemoryFormat::Contiguous;
  at::Tensor x = row_major(on_devices(name), is_last ? input.movedim(1, -1) : input, type);
  for (std::int64_t step = 0; step < dims; ++step) {
    const std::int64_t axis = is_gradient ? step : dims - 1 - step;
    const std::int64_t dim = input.dim() - dims + axis - (is_last ? 1 : 0);
    tap_table& table = tables[static_cast<std::size_t>(axis)];
    if (is_gradient) table = numeric::transposed(table);
    TORCH_CHECK(x.size(dim) == table.inputs, name, ": dimension ", dim, " has size ", x.size(dim),
                ", expected ", table.inputs);
    sizes to(x.sizes());
    to[static_cast<std::size_t>(dim)] = table.outputs();
    const at::Tensor y = make_beside(x, to, type);
    const std::int64_t outer = product(x.sizes(), 0, dim);
    const std::int64_t inner = product(x.sizes(), dim + 1, x.dim());
    if (is_on_device(x)) {
      resample_there(table, outer, inner, x, y);
    } else {
      with_real(type, [&](auto zero) {
        using Real = decltype(zero);
        numeric::resample(table, outer, inner, x.const_data_ptr<Real>(), y.mutable_data_ptr<Real>(),
                          executor());
      });
    }
    x = y;
  }
  const at::Tensor out = rounded_to(x, input.scalar_type());
  return is_last ? out.movedim(-1, 1) : in_format(out, input.suggest_memory_format());
}

enum class filter { nearest, nearest_exact, linear, cubic, smooth_linear, smooth_cubic };

tap_table taps(filter kind, const resize& of) {
  switch (kind) {
    case filter::nearest: return numeric::nearest_taps(of, false);
    case filter::nearest_exact: return numeric::nearest_taps(of, true);
    case filter::linear: return numeric::linear_taps(of);
    case filter::cubic: return numeric::cubic_taps(of);
    case filter::smooth_linear: return numeric::smooth_linear_taps(of);
    case filter::smooth_cubic: return numeric::smooth_cubic_taps(of);
  }
  TORCH_INTERNAL_ASSERT(false);
}

using scale = std::optional<double>;

std::vector<tap_table> tables_of(filter kind, c10::IntArrayRef inputs, c10::IntArrayRef outputs,
                                 bool align_corners, std::initializer_list<scale> scales) {
  TORCH_CHECK(outputs.size() == scales.size() && inputs.size() == scales.size() + 2,
              "upsample: ", scales.size(), " sizes and an input of ", scales.size() + 2,
              " dimensions are expected");
  std::vector<tap_table> out;
  for (std::size_t axis = 0; axis < scales.size(); ++axis) {
    TORCH_CHECK(inputs[axis + 2] > 0 && outputs[axis] > 0,
                "upsample: sizes must be greater than 0");
    out.push_back(
        taps(kind, {inputs[axis + 2], outputs[axis], align_corners, scales.begin()[axis]}));
  }
  return out;
}

template <filter Kind, class... Scales>
at::Tensor upsample(const at::Tensor& x, c10::IntArrayRef outputs, bool align_corners,
                    Scales... scales) {
  return resampled("upsample", x, tables_of(Kind, x.sizes(), outputs, align_corners, {scales...}),
                   false);
}

template <filter Kind, class... Scales>
at::Tensor upsample_backward(const at::Tensor& dy, c10::IntArrayRef outputs,
                             c10::IntArrayRef inputs, bool align_corners, Scales... scales) {
  return resampled("upsample_backward", dy,
                   tables_of(Kind, inputs, outputs, align_corners, {scales...}), true);
}

template <filter Kind, class... Scales>
at::Tensor upsample_nearest(const at::Tensor& x, c10::IntArrayRef outputs, Scales... scales) {
  return upsample<Kind>(x, outputs, false, scales...);
}

template <filter Kind, class... Scales>
at::Tensor upsample_nearest_backward(const at::Tensor& dy, c10::IntArrayRef outputs,
                                     c10::IntArrayRef inputs, Scales... scales) {
  return upsample_backward<Kind>(dy, outputs, inputs, false, scales...);
}

/// Borders that torch lists from the last dimension to the first.
template <bool Reflect>
at::Tensor pad_backward(const at::Tensor& dy, const at::Tensor& input, c10::IntArrayRef padding) {
  const auto dims = static_cast<std::int64_t>(padding.size() / 2);
  std::vector<tap_table> tables;
  for (std::int64_t axis = 0; axis < dims; ++axis) {
    const auto pair = static_cast<std::size_t>(2 * (dims - 1 - axis));
    tables.push_back(numeric::padding_taps(input.size(input.dim() - dims + axis), padding[pair],
                                           padding[pair + 1], Reflect));
  }
  return resampled("pad_backward", dy, std::move(tables), true);
}

/// Windows added back, one position of the kernel after the other.
at::Tensor col2im(const at::Tensor& columns, c10::IntArrayRef output, c10::IntArrayRef kernel,
                  c10::IntArrayRef dilation, c10::IntArrayRef padding, c10::IntArrayRef stride) {
  TORCH_CHECK(columns.dim() == 2 || columns.dim() == 3,
              "fold: the input must have 2 or 3 dimensions");
  TORCH_CHECK(output.size() == 2 && kernel.size() == 2 && dilation.size() == 2 &&
                  padding.size() == 2 && stride.size() == 2,
              "fold: two sizes are expected");
  const char* name = "col2im";
  const c10::ScalarType type = compute_type(name, columns.scalar_type());
  const at::Tensor x = columns.dim() == 2 ? columns.unsqueeze(0) : columns;
  const auto blocks = [&](std::size_t axis) {
    TORCH_CHECK(kernel[axis] > 0 && dilation[axis] > 0 && stride[axis] > 0 && padding[axis] >= 0,
                "fold: kernel size, dilation and stride must be positive");
    return (output[axis] + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1) /
               stride[axis] +
           1;
  };
  const std::int64_t high = blocks(0);
  const std::int64_t wide = blocks(1);
  const std::int64_t places = kernel[0] * kernel[1];
  TORCH_CHECK(high > 0 && wide > 0 && x.size(1) % places == 0 && x.size(2) == high * wide,
              "fold: the input's shape ", columns.sizes(), " does not fit ", high, " by ", wide,
              " windows of ", places, " elements");
  const std::int64_t channels = x.size(1) / places;
  const at::Tensor windows = row_major(on_devices(name), x, type)
                                 .view({x.size(0), channels, kernel[0], kernel[1], high, wide});
  at::Tensor out =
      at::zeros({x.size(0), channels, output[0] + 2 * padding[0], output[1] + 2 * padding[1]},
                windows.options());
  for (std::int64_t i = 0; i < kernel[0]; ++i) {
    for (std::int64_t j = 0; j < kernel[1]; ++j) {
      const std::int64_t top = i * dilation[0];
      const std::int64_t left = j * dilation[1];
      out.slice(2, top, top + stride[0] * (high - 1) + 1, stride[0])
          .slice(3, left, left + stride[1] * (wide - 1) + 1, stride[1])
          .add_(windows.select(2, i).select(2, j));
    }
  }
  out = out.narrow(2, padding[0], output[0]).narrow(3, padding[1], output[1]).contiguous();
  if (columns.dim() == 2) out = out.squeeze(0);
  return rounded_to(out, columns.scalar_type());
}

/// Gradient of Tensor.unfold: windows added back, one place in the window after the other.
at::Tensor unfold_backward(const at::Tensor& gradient, c10::IntArrayRef input_sizes,
                           std::int64_t dim, std::int64_t size, std::int64_t step) {
  const char* name = "unfold_backward";
  const c10::ScalarType type = compute_type(name, gradient.scalar_type());
  if (input_sizes.empty()) return gradient.reshape({});
  dim = c10::maybe_wrap_dim(dim, static_cast<std::int64_t>(input_sizes.size()));
  const at::Tensor windows = row_major(on_devices(name), gradient, type);
  const at::Tensor out = at::zeros(input_sizes, windows.options());
  const std::int64_t count = windows.size(dim);
  for (std::int64_t j = 0; j < size && count > 0; ++j) {
    out.slice(dim, j, j + step * (count - 1) + 1, step).add_(windows.select(-1, j));
  }
  return rounded_to(out, gradient.scalar_type());
}

/// An interpolation and its gradient.
template <auto Forward, auto Backward>
void add(registrar& r, const std::string& name, const char* forward, const char* backward) {
  r.kernel<Forward>(name, forward, {name + ".out"});
  r.kernel<Backward>(name + "_backward", backward, {name + "_backward.grad_input"});
}

template <filter Kind, class... Scales>
void add_nearest(registrar& r, const std::string& name) {
  add<&upsample_nearest<Kind, Scales...>, &upsample_nearest_backward<Kind, Scales...>>(
      r, name, "the nearest element, at torch's positions",
      "added in ascending order of the outputs, the first dimension first");
}

template <filter Kind, class... Scales>
void add_weighted(registrar& r, const std::string& name) {
  add<&upsample<Kind, Scales...>, &upsample_backward<Kind, Scales...>>(
      r, name,
      "weights in float64, rounded once; the last dimension first, products and sums rounded in "
      "ascending order",
      "the transposed weights, the first dimension first");
}

void register_filters(registrar& r) {
  using enum filter;
  add_nearest<nearest, scale>(r, "upsample_nearest1d");
  add_nearest<nearest, scale, scale>(r, "upsample_nearest2d");
  add_nearest<nearest, scale, scale, scale>(r, "upsample_nearest3d");
  add_nearest<nearest_exact, scale>(r, "_upsample_nearest_exact1d");
  add_nearest<nearest_exact, scale, scale>(r, "_upsample_nearest_exact2d");
  add_nearest<nearest_exact, scale, scale, scale>(r, "_upsample_nearest_exact3d");
  add_weighted<linear, scale>(r, "upsample_linear1d");
  add_weighted<linear, scale, scale>(r, "upsample_bilinear2d");
  add_weighted<linear, scale, scale, scale>(r, "upsample_trilinear3d");
  add_weighted<cubic, scale, scale>(r, "upsample_bicubic2d");
  add_weighted<smooth_linear, scale, scale>(r, "_upsample_bilinear2d_aa");
  add_weighted<smooth_cubic, scale, scale>(r, "_upsample_bicubic2d_aa");
  r.refused({"_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa.out",
             "_upsample_lanczos2d_aa_backward", "_upsample_lanczos2d_aa_backward.grad_input"},
            "interpolate with mode='bicubic'");
}

void register_borders(registrar& r) {
  const char* sums = "added in ascending order of the outputs, the first dimension first";
  for (const std::string dims : {"1d", "2d", "3d"}) {
    for (const bool reflect : {true, false}) {
      const std::string name = (reflect ? "reflection_pad" : "replication_pad") + dims;
      r.exact({name.c_str(), (name + ".out").c_str()}, "copies");
      const std::string backward = name + "_backward";
      const std::string into = backward + ".grad_input";
      reflect ? r.kernel<&pad_backward<true>>(backward, sums, {into})
              : r.kernel<&pad_backward<false>>(backward, sums, {into});
    }
  }
}

}  // namespace

void register_upsampling(registrar& r) {
  register_filters(r);
  register_borders(r);
  r.exact({"im2col", "im2col.out"}, "copies");
  r.kernel<col2im>(
      "col2im", "one sum per element of each window, in ascending order of its place in the kernel",
      {"col2im.out"});
  r.kernel<unfold_backward>(
      "unfold_backward",
      "one sum per element of each window, in ascending order of its place in the window");
}

}  // namespace potl::libtorch::dispatch

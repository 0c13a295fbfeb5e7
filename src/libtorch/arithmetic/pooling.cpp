// SPDX-License-Identifier: Apache-2.0
// Pooling: averages, and gradients of both kinds. Maxima select, as the stock kernels do.
#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <potl/numeric/detail/accumulation.hpp>
#include <potl/numeric/detail/maxima.hpp>
#include <potl/numeric/detail/pooling.hpp>

#include "device.hpp"
#include "real.hpp"
#include "registrar.hpp"
#include "rows.hpp"
#include "turning.hpp"

namespace potl::libtorch::dispatch {
namespace {

using numeric::average_pool;
using numeric::pool_window;

std::int64_t at_or_only(c10::IntArrayRef of, std::int64_t axis) {
  return of[of.size() == 1 ? 0 : static_cast<std::size_t>(axis)];
}

/// Number of windows: the last one starts inside of the input or its left padding.
std::int64_t pooled_size(std::int64_t inputs, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding, bool ceil_mode) {
  TORCH_CHECK(stride > 0 && kernel > 0, "pooling: kernel size and stride must be positive");
  TORCH_CHECK(padding >= 0 && 2 * padding <= kernel,
              "pooling: the padding must be at least 0 and at most half of the kernel size");
  const std::int64_t room = inputs + 2 * padding - kernel;
  TORCH_CHECK(room + (ceil_mode ? stride - 1 : 0) >= 0,
              "pooling: the kernel is larger than the padded input");
  std::int64_t out = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (out - 1) * stride >= inputs + padding) --out;
  return out;
}

/// The windows of avg_pool<dims>d over the last `dims` dimensions.
average_pool sliding(const at::Tensor& input, std::int64_t dims, c10::IntArrayRef kernel,
                     c10::IntArrayRef stride, c10::IntArrayRef padding, bool ceil_mode,
                     bool count_padding, std::optional<std::int64_t> divisor) {
  TORCH_CHECK(input.dim() == dims + 1 || input.dim() == dims + 2, "avg_pool", dims,
              "d: the input must have ", dims + 1, " or ", dims + 2, " dimensions");
  TORCH_CHECK(!divisor || *divisor != 0, "avg_pool: divisor must be not zero");
  average_pool of;
  of.divisor = divisor;
  of.planes = product(input.sizes(), 0, input.dim() - dims);
  of.windows.fill({pool_window{0, 1, 1}});
  for (std::int64_t axis = 0; axis < dims; ++axis) {
    const auto slot = static_cast<std::size_t>(3 - dims + axis);
    const std::int64_t inputs = input.size(input.dim() - dims + axis);
    const std::int64_t width = at_or_only(kernel, axis);
    const std::int64_t step = stride.empty() ? width : at_or_only(stride, axis);
    const std::int64_t border = at_or_only(padding, axis);
    const std::int64_t outputs = pooled_size(inputs, width, step, border, ceil_mode);
    of.input[slot] = inputs;
    of.windows[slot] =
        numeric::sliding_windows(inputs, outputs, width, step, border, count_padding);
  }
  return of;
}

average_pool adaptive(const at::Tensor& input, std::int64_t dims, c10::IntArrayRef outputs) {
  TORCH_CHECK(input.dim() == dims + 1 || input.dim() == dims + 2, "adaptive_avg_pool", dims,
              "d: the input must have ", dims + 1, " or ", dims + 2, " dimensions");
  average_pool of;
  of.planes = product(input.sizes(), 0, input.dim() - dims);
  of.windows.fill({pool_window{0, 1, 1}});
  for (std::int64_t axis = 0; axis < dims; ++axis) {
    const auto slot = static_cast<std::size_t>(3 - dims + axis);
    const std::int64_t inputs = input.size(input.dim() - dims + axis);
    TORCH_CHECK(inputs > 0, "adaptive_avg_pool: the input has no elements to average");
    of.input[slot] = inputs;
    of.windows[slot] = numeric::adaptive_windows(inputs, outputs[static_cast<std::size_t>(axis)]);
  }
  return of;
}

sizes output_sizes(const at::Tensor& input, std::int64_t dims, const average_pool& of) {
  sizes out(input.sizes().slice(0, static_cast<std::size_t>(input.dim() - dims)));
  for (std::int64_t axis = 0; axis < dims; ++axis) {
    out.push_back(
        static_cast<std::int64_t>(of.windows[static_cast<std::size_t>(3 - dims + axis)].size()));
  }
  return out;
}

/// A pool on the device of x: the windows are sent there.
template <class Call>
void pool_there(const average_pool& of, const at::Tensor& x, const Call& call) {
  cuda::pool_windows windows;
  windows.planes = of.planes;
  windows.divisor = of.divisor.value_or(0);
  std::vector<std::int64_t> all;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    windows.inputs[axis] = of.input[axis];
    windows.outputs[axis] = static_cast<std::int64_t>(of.windows[axis].size());
    for (const pool_window& one : of.windows[axis]) {
      TORCH_CHECK(one.begin >= 0 && one.end <= of.input[axis], "a window lies outside its input");
      all.insert(all.end(), {one.begin, one.end, one.extent});
    }
  }
  const at::Tensor sent = at::tensor(all, at::TensorOptions(at::kLong)).to(x.device());
  windows.windows = sent.const_data_ptr<std::int64_t>();
  const device_call there(x);
  call(there, windows);
}

/// Operands of one layout, that of the input. Without samples there is no dimension of channels
/// that torch could let lie last: where four are (C, D, H, W), it takes D for one.
class pool_layout {
 public:
  pool_layout(const at::Tensor& input, std::int64_t dims, average_pool& of)
      : format_(is_on_device(input) || input.dim() != dims + 2 ? at::MemoryFormat::Contiguous
                                                               : input.suggest_memory_format()) {
    if (format_ == at::MemoryFormat::Contiguous) return;
    of.planes = input.size(0);
    of.channels = input.size(1);
  }
  at::Tensor of(const char* name, const at::Tensor& x, c10::ScalarType type) const {
    return row_major(on_devices(name), is_last() ? x.movedim(1, -1) : x, type);
  }
  at::Tensor make(const at::Tensor& like, c10::IntArrayRef sizes, c10::ScalarType type) const {
    return at::empty(sizes, like.options().dtype(type), format_);
  }

  bool is_last() const { return format_ != at::MemoryFormat::Contiguous; }

 private:
  at::MemoryFormat format_;
};

at::Tensor run(const char* name, const at::Tensor& input, std::int64_t dims, average_pool of) {
  const c10::ScalarType type = compute_type(name, input.scalar_type());
  const pool_layout layout(input, dims, of);
  const at::Tensor x = layout.of(name, input, type);
  const at::Tensor y = layout.make(input, output_sizes(input, dims, of), type);
  if (is_on_device(input)) {
    pool_there(of, x, [&](const device_call& there, const cuda::pool_windows& windows) {
      there->pool(windows, x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), there.queue());
    });
    return in_format(rounded_to(y, input.scalar_type()), input.suggest_memory_format());
  }
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    numeric::pool(of, x.const_data_ptr<Real>(), y.mutable_data_ptr<Real>(), executor());
  });
  return in_format(rounded_to(y, input.scalar_type()), input.suggest_memory_format());
}

at::Tensor run_gradient(const char* name, const at::Tensor& gradient, const at::Tensor& input,
                        std::int64_t dims, average_pool of) {
  TORCH_CHECK(gradient.sizes() == c10::IntArrayRef(output_sizes(input, dims, of)), name,
              ": the gradient has shape ", gradient.sizes());
  require_one_device(name, gradient, input);
  const c10::ScalarType type = compute_type(name, gradient.scalar_type());
  const pool_layout layout(input, dims, of);
  const at::Tensor dy = layout.of(name, gradient, type);
  const at::Tensor dx = layout.make(input, input.sizes(), type);
  if (is_on_device(input)) {
    pool_there(of, dy, [&](const device_call& there, const cuda::pool_windows& windows) {
      there->pool_gradient(windows, dy.const_data_ptr<float>(), dx.mutable_data_ptr<float>(),
                           there.queue());
    });
    return in_format(rounded_to(dx, gradient.scalar_type()), input.suggest_memory_format());
  }
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    numeric::pool_gradient(of, dy.const_data_ptr<Real>(), dx.mutable_data_ptr<Real>(), executor());
  });
  return in_format(rounded_to(dx, gradient.scalar_type()), input.suggest_memory_format());
}

template <std::int64_t Dims>
at::Tensor avg_pool(const at::Tensor& input, c10::IntArrayRef kernel, c10::IntArrayRef stride,
                    c10::IntArrayRef padding, bool ceil_mode, bool count_padding,
                    std::optional<std::int64_t> divisor) {
  return run("avg_pool", input, Dims,
             sliding(input, Dims, kernel, stride, padding, ceil_mode, count_padding, divisor));
}

template <std::int64_t Dims>
at::Tensor avg_pool_backward(const at::Tensor& gradient, const at::Tensor& input,
                             c10::IntArrayRef kernel, c10::IntArrayRef stride,
                             c10::IntArrayRef padding, bool ceil_mode, bool count_padding,
                             std::optional<std::int64_t> divisor) {
  return run_gradient(
      "avg_pool_backward", gradient, input, Dims,
      sliding(input, Dims, kernel, stride, padding, ceil_mode, count_padding, divisor));
}

template <std::int64_t Dims>
at::Tensor adaptive_avg_pool(const at::Tensor& input, c10::IntArrayRef outputs) {
  return run("adaptive_avg_pool", input, Dims, adaptive(input, Dims, outputs));
}

template <std::int64_t Dims>
at::Tensor adaptive_avg_pool_backward(const at::Tensor& gradient, const at::Tensor& input) {
  return run_gradient(
      "adaptive_avg_pool_backward", gradient, input, Dims,
      adaptive(input, Dims,
               gradient.sizes().slice(static_cast<std::size_t>(gradient.dim() - Dims))));
}

/// The windows of max_pool2d along one dimension; none where torch refuses or needs to judge.
std::vector<numeric::max_window> maximum_windows(std::int64_t inputs, std::int64_t kernel,
                                                 std::int64_t stride, std::int64_t padding,
                                                 std::int64_t dilation, bool ceil_mode) {
  constexpr std::int64_t most = 1 << 15;
  for (const std::int64_t size : {inputs, kernel, stride, padding + 1, dilation}) {
    if (size < 1 || size > most) return {};
  }
  const std::int64_t reach = dilation * (kernel - 1) + 1;
  const std::int64_t room = inputs + 2 * padding - reach;
  if (room < 0 || 2 * padding > kernel) return {};
  std::int64_t outputs = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (outputs - 1) * stride >= inputs + padding) --outputs;
  std::vector<numeric::max_window> out;
  for (std::int64_t j = 0; j < outputs; ++j) {
    std::int64_t begin = j * stride - padding;
    const std::int64_t end = std::min(begin + reach, inputs);
    if (begin < 0) begin += (dilation - 1 - begin) / dilation * dilation;
    if (begin >= end) return {};
    out.push_back({begin, end, dilation});
  }
  return out;
}

std::tuple<at::Tensor, at::Tensor> max_pool2d(keys_t keys, const at::Tensor& x,
                                              c10::IntArrayRef kernel, c10::IntArrayRef stride,
                                              c10::IntArrayRef padding, c10::IntArrayRef dilation,
                                              bool ceil_mode) {
  constexpr std::int64_t most_places = 1 << 20;  // of a table that all planes share
  const auto fits = [](c10::IntArrayRef one) { return one.size() == 1 || one.size() == 2; };
  numeric::max_windows of;
  if (x.device().is_cpu() && x.scalar_type() == at::kFloat && x.dim() >= 3 && x.dim() <= 4 &&
      x.is_contiguous() && x.suggest_memory_format() == at::MemoryFormat::Contiguous &&
      fits(kernel) && (stride.empty() || fits(stride)) && fits(padding) && fits(dilation)) {
    of.planes = product(x.sizes(), 0, x.dim() - 2);
    of.height = x.size(-2);
    of.width = x.size(-1);
    const auto along = [&](std::int64_t axis, std::int64_t inputs) {
      return maximum_windows(inputs, at_or_only(kernel, axis),
                             at_or_only(stride.empty() ? kernel : stride, axis),
                             at_or_only(padding, axis), at_or_only(dilation, axis), ceil_mode);
    };
    of.rows = along(0, of.height);
    of.columns = along(1, of.width);
  }
  const auto outputs = static_cast<std::int64_t>(of.rows.size() * of.columns.size());
  if (of.planes < 1 || outputs == 0 ||
      outputs > most_places / (at_or_only(kernel, 0) * at_or_only(kernel, 1))) {
    return at::_ops::max_pool2d_with_indices::redispatch(keys & below, x, kernel, stride, padding,
                                                         dilation, ceil_mode);
  }
  sizes shape(x.sizes().slice(0, static_cast<std::size_t>(x.dim() - 2)));
  shape.push_back(static_cast<std::int64_t>(of.rows.size()));
  shape.push_back(static_cast<std::int64_t>(of.columns.size()));
  const at::Tensor y = at::empty(shape, x.options());
  const at::Tensor places = at::empty(shape, x.options().dtype(at::kLong));
  numeric::maxima(of, x.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                  places.mutable_data_ptr<std::int64_t>(), executor());
  return {y, places};
}

/// Every element of the gradient goes to the input element that was the maximum; `indices` number
/// the elements of a plane, the last `dims` dimensions of the input.
at::Tensor maximum_gradient(const at::Tensor& gradient, const at::Tensor& input, std::int64_t dims,
                            const at::Tensor& indices) {
  const char* name = "max_pool_backward";
  const std::int64_t lead = input.dim() - dims;
  const auto planes_of = [&](const at::Tensor& x) {
    return x.sizes().slice(0, static_cast<std::size_t>(lead));
  };
  TORCH_CHECK(gradient.sizes() == indices.sizes() && gradient.dim() == input.dim() && lead > 0 &&
                  planes_of(gradient) == planes_of(input),
              name, ": gradient and indices must have the shape of the output");
  require_one_device(name, gradient, input, indices);
  const c10::ScalarType type = compute_type(name, gradient.scalar_type());
  average_pool channels;
  const pool_layout layout(input, dims, channels);
  const at::Tensor dy = layout.of(name, gradient, type);
  const at::Tensor where = layout.of(name, indices, at::kLong);
  const at::Tensor dx = layout.make(input, input.sizes(), type).zero_();
  // With channels last they are columns of each image.
  const std::int64_t inner = layout.is_last() ? input.size(1) : 1;
  numeric::accumulation_shape shape{
      layout.is_last() ? input.size(0) : product(input.sizes(), 0, lead),
      product(input.sizes(), lead, input.dim()), product(gradient.sizes(), lead, input.dim()),
      inner};
  if (is_on_device(dy)) {
    const at::Tensor planes = at::arange(shape.outer, where.options()).unsqueeze(1) * shape.rows;
    add_rows_there((where.reshape({shape.outer, shape.count}) + planes).reshape(-1),
                   dy.reshape({-1, 1}), dx.view({-1, 1}));
    return in_format(rounded_to(dx, gradient.scalar_type()), input.suggest_memory_format());
  }
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    numeric::accumulate_elements(numeric::accumulation::add, shape,
                                 where.const_data_ptr<std::int64_t>(), dy.const_data_ptr<Real>(),
                                 dx.mutable_data_ptr<Real>(), executor());
  });
  return in_format(rounded_to(dx, gradient.scalar_type()), input.suggest_memory_format());
}

template <std::int64_t Dims>
at::Tensor max_pool_backward(const at::Tensor& gradient, const at::Tensor& input, c10::IntArrayRef,
                             c10::IntArrayRef, c10::IntArrayRef, c10::IntArrayRef, bool,
                             const at::Tensor& indices) {
  return maximum_gradient(gradient, input, Dims, indices);
}

template <std::int64_t Dims>
at::Tensor adaptive_max_pool_backward(const at::Tensor& gradient, const at::Tensor& input,
                                      const at::Tensor& indices) {
  return maximum_gradient(gradient, input, Dims, indices);
}

template <std::int64_t Dims>
at::Tensor fractional_max_pool_backward(const at::Tensor& gradient, const at::Tensor& input,
                                        c10::IntArrayRef, c10::IntArrayRef,
                                        const at::Tensor& indices) {
  return maximum_gradient(gradient, input, Dims, indices);
}

/// Not torch's kernel, whose threads write at once: any of several values for one place might stay.
template <std::int64_t Dims>
at::Tensor unpooled(const char* name, const at::Tensor& values, const at::Tensor& indices,
                    c10::IntArrayRef output_size) {
  if (is_elsewhere(values)) {
    refuse(std::string("the operator ") + name + " is not reproducible on a GPU",
           "move its operands to the CPU");
  }
  TORCH_CHECK(values.sizes() == indices.sizes() && values.dim() > Dims &&
                  output_size.size() == static_cast<std::size_t>(Dims),
              name, "(): there is an index for each of the values, and a size for each dimension");
  sizes lead(values.sizes().slice(0, static_cast<std::size_t>(values.dim() - Dims)));
  sizes flat = lead, full = lead;
  flat.push_back(c10::multiply_integers(output_size));
  full.insert(full.end(), output_size.begin(), output_size.end());
  return at::zeros(flat, values.options())
      .scatter_(-1, indices.flatten(-Dims), values.flatten(-Dims))
      .view(full)
      .contiguous(values.suggest_memory_format());
}

at::Tensor max_unpool2d(const at::Tensor& values, const at::Tensor& indices,
                        c10::IntArrayRef output_size) {
  return unpooled<2>("max_unpool2d", values, indices, output_size);
}

at::Tensor max_unpool3d(const at::Tensor& values, const at::Tensor& indices,
                        c10::IntArrayRef output_size, c10::IntArrayRef, c10::IntArrayRef) {
  return unpooled<3>("max_unpool3d", values, indices, output_size);
}

}  // namespace

void register_pooling(registrar& r) {
  r.exact({"max_pool2d_with_indices.out", "max_pool3d_with_indices", "max_pool3d_with_indices.out",
           "adaptive_max_pool2d", "adaptive_max_pool2d.out", "adaptive_max_pool3d",
           "adaptive_max_pool3d.out"},
          "selects");
  r.kernel<max_pool2d>("max_pool2d_with_indices", "the first of the largest, or the last NaN");
  const char* placed = "scatter, the last value stays";
  r.kernel<max_unpool2d>("max_unpool2d", placed, {"max_unpool2d.out"});
  r.kernel<max_unpool3d>("max_unpool3d", placed, {"max_unpool3d.out"});
  r.refused({"fractional_max_pool2d", "fractional_max_pool2d.output", "fractional_max_pool3d",
             "fractional_max_pool3d.output"},
            "use max_pool2d or adaptive_max_pool2d");

  const char* mean = "the sum over each window from +0 in ascending order, divided once";
  r.kernel<avg_pool<2>>("avg_pool2d", mean, {"avg_pool2d.out"});
  r.kernel<avg_pool<3>>("avg_pool3d", mean, {"avg_pool3d.out"});
  r.kernel<adaptive_avg_pool<2>>("_adaptive_avg_pool2d", mean, {"adaptive_avg_pool2d.out"});
  r.kernel<adaptive_avg_pool<3>>("_adaptive_avg_pool3d", mean, {"adaptive_avg_pool3d.out"});

  const char* shares = "gradient / divisor, added in ascending order of the outputs";
  r.kernel<avg_pool_backward<2>>("avg_pool2d_backward", shares, {"avg_pool2d_backward.grad_input"});
  r.kernel<avg_pool_backward<3>>("avg_pool3d_backward", shares, {"avg_pool3d_backward.grad_input"});
  r.kernel<adaptive_avg_pool_backward<2>>("_adaptive_avg_pool2d_backward", shares);
  r.kernel<adaptive_avg_pool_backward<3>>("_adaptive_avg_pool3d_backward", shares,
                                          {"adaptive_avg_pool3d_backward.grad_input"});

  const char* chosen = "added to the maximum's place in ascending order of the outputs";
  r.kernel<max_pool_backward<2>>("max_pool2d_with_indices_backward", chosen,
                                 {"max_pool2d_with_indices_backward.grad_input"});
  r.kernel<max_pool_backward<3>>("max_pool3d_with_indices_backward", chosen,
                                 {"max_pool3d_with_indices_backward.grad_input"});
  r.kernel<adaptive_max_pool_backward<2>>("adaptive_max_pool2d_backward", chosen,
                                          {"adaptive_max_pool2d_backward.grad_input"});
  r.kernel<adaptive_max_pool_backward<3>>("adaptive_max_pool3d_backward", chosen,
                                          {"adaptive_max_pool3d_backward.grad_input"});
  r.kernel<fractional_max_pool_backward<2>>("fractional_max_pool2d_backward", chosen);
  r.kernel<fractional_max_pool_backward<3>>("fractional_max_pool3d_backward", chosen);
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// Convolutions in 1, 2 and 3 dimensions, transposed ones and gradients. Dot products are those of
// numeric/convolution.hpp; a bias is added with one more rounding, its gradient is a sum
// (numeric/reduction.hpp). float64: convolution_double.hpp.
#include <algorithm>
#include <functional>

#include <potl/numeric/convolution.hpp>
#include <potl/numeric/detail/convolution_operands.hpp>

#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "convolution_double.hpp"
#include "device.hpp"
#include "operand.hpp"
#include "passing.hpp"
#include "products.hpp"
#include "registrar.hpp"
#include "rounding.hpp"
#include "turning.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::IntArrayRef;
using at::Tensor;
using optional_sizes = c10::OptionalArrayRef<std::int64_t>;

struct geometry_options {
  IntArrayRef stride;
  IntArrayRef padding;
  IntArrayRef dilation;
  bool transposed;
  IntArrayRef output_padding;
  std::int64_t groups;
};

/// Sizes of the spatial dimensions, behind leading ones.
std::array<std::int64_t, 3> three(IntArrayRef values, std::int64_t dimensions, std::int64_t rest) {
  std::array<std::int64_t, 3> out{rest, rest, rest};
  for (std::int64_t i = 0; i < dimensions; ++i) {
    out[static_cast<std::size_t>(3 - dimensions + i)] =
        values.size() == 1 ? values[0] : values[static_cast<std::size_t>(i)];
  }
  return out;
}

/// The convolution that maps `wide` (in_channels) to `deep` (out_channels): a transposed one is its
/// gradient.
numeric::convolution geometry(const geometry_options& options, IntArrayRef wide, IntArrayRef weight,
                              std::int64_t deep_channels) {
  const auto dimensions = static_cast<std::int64_t>(weight.size()) - 2;
  numeric::convolution out;
  out.batch = wide[0];
  out.in_channels = wide[1];
  out.out_channels = deep_channels;
  out.groups = options.groups;
  out.input = three(wide.slice(2), dimensions, 1);
  out.kernel = three(weight.slice(2), dimensions, 1);
  out.stride = three(options.stride, dimensions, 1);
  out.padding = three(options.padding, dimensions, 0);
  out.dilation = three(options.dilation, dimensions, 1);
  return out;
}

std::int64_t value_at(IntArrayRef values, std::size_t dimension) {
  return values.size() == 1 ? values[0] : values[dimension];
}

/// Sizes of a tensor with these spatial dimensions.
std::vector<std::int64_t> sizes_of(std::int64_t batch, std::int64_t channels,
                                   const std::array<std::int64_t, 3>& spatial,
                                   std::int64_t dimensions) {
  std::vector<std::int64_t> out{batch, channels};
  out.insert(out.end(), spatial.end() - dimensions, spatial.end());
  return out;
}

/// The sizes that a transposed convolution gives.
std::vector<std::int64_t> transposed_sizes(const geometry_options& options, IntArrayRef input,
                                           IntArrayRef weight) {
  std::vector<std::int64_t> out{input[0], weight[1] * options.groups};
  for (std::size_t i = 2; i < weight.size(); ++i) {
    const auto at = [&](IntArrayRef values) { return value_at(values, i - 2); };
    out.push_back((input[i] - 1) * at(options.stride) - 2 * at(options.padding) +
                  at(options.dilation) * (weight[i] - 1) + at(options.output_padding) + 1);
    TORCH_CHECK(out.back() >= 0, "the transposed convolution of sizes ", input, " with ", weight,
                " has no result");
  }
  return out;
}

/// The places of a transposed convolution's input with those that its output_padding adds behind
/// them. A convolution of its result has one more for each whole stride of that padding, which
/// torch allows where the dilation is larger than the stride; nothing is there, so they are zeros.
std::vector<std::int64_t> deep_sizes(const geometry_options& options, IntArrayRef input) {
  std::vector<std::int64_t> out = input.vec();
  for (std::size_t i = 2; i < out.size(); ++i) {
    out[i] += value_at(options.output_padding, i - 2) / value_at(options.stride, i - 2);
  }
  return out;
}

/// The first places of x, as many as these sizes have.
Tensor first_places(Tensor x, IntArrayRef places) {
  for (std::int64_t i = 2; i < x.dim(); ++i) {
    x = x.narrow(i, 0, std::min(x.size(i), places[static_cast<std::size_t>(i)]));
  }
  return x;
}

Tensor with_zeros(const Tensor& x, IntArrayRef sizes) {
  if (x.sizes() == sizes) return x;
  Tensor out = at::zeros(sizes, x.options());
  first_places(out, x.sizes()).copy_(x);
  return out;
}

void check_options(const geometry_options& options, const Tensor& weight, const Tensor* bias) {
  for (std::size_t i = 0; i + 2 < static_cast<std::size_t>(weight.dim()); ++i) {
    const std::int64_t stride = value_at(options.stride, i);
    const std::int64_t dilation = value_at(options.dilation, i);
    TORCH_CHECK(stride >= 1 && dilation >= 1 && value_at(options.padding, i) >= 0,
                "convolution: stride and dilation are at least 1, padding at least 0; got ",
                options.stride, ", ", options.dilation, " and ", options.padding);
    if (!options.transposed) continue;
    const std::int64_t output_padding = value_at(options.output_padding, i);
    TORCH_CHECK(output_padding >= 0 && output_padding < std::max(stride, dilation),
                "convolution: output_padding is at least 0 and below stride or dilation; got ",
                options.output_padding, ", ", options.stride, " and ", options.dilation);
  }
  TORCH_CHECK(options.groups >= 1 && weight.size(0) % options.groups == 0,
              "convolution: ", options.groups, " groups do not divide weights of sizes ",
              weight.sizes());
  const std::int64_t channels =
      options.transposed ? weight.size(1) * options.groups : weight.size(0);
  TORCH_CHECK(bias == nullptr || (bias->dim() == 1 && bias->size(0) == channels),
              "convolution: a bias has one value for each of ", channels, " channels");
}

void check(const Tensor& input, const Tensor& weight, const geometry_options& options,
           const Tensor* bias = nullptr) {
  require_one_device("convolution", input, weight);
  require_plain(on_devices("convolution"), input);
  require_plain(on_devices("convolution"), weight);
  const std::int64_t dimensions = weight.dim() - 2;
  TORCH_CHECK(dimensions >= 1 && dimensions <= 3 && input.dim() == weight.dim(),
              "convolution: expected 3 to 5 dimensions, got sizes ", input.sizes(), " and ",
              weight.sizes());
  const auto fits = [&](IntArrayRef values) {
    return values.size() == 1 || static_cast<std::int64_t>(values.size()) == dimensions;
  };
  TORCH_CHECK(fits(options.stride) && fits(options.padding) && fits(options.dilation) &&
                  (!options.transposed || fits(options.output_padding)),
              "convolution: stride, padding and dilation need one value per dimension");
  TORCH_CHECK(
      input.size(1) == (options.transposed ? weight.size(0) : weight.size(1) * options.groups),
      "convolution: input of sizes ", input.sizes(), " has not the channels of weights ",
      weight.sizes(), " with ", options.groups, " groups");
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "convolution: input has type ",
              input.scalar_type(), ", and weights have ", weight.scalar_type());
  check_options(options, weight, bias);
}

void check_gradient(const Tensor& dy, IntArrayRef sizes) {
  TORCH_CHECK(dy.sizes() == sizes, "convolution: the result has sizes ", sizes,
              ", and its gradient ", dy.sizes());
}

/// One of the three products of two operands, and how it is computed on each way.
struct kernel {
  const char* name;  ///< in the rounding log
  decltype(&double_convolution) in_double;
  decltype(&numeric::convolve) here;
  decltype(&numeric::convolve_log64) here_log64;
  decltype(&numeric::convolution_operands) operands;
  decltype(&device_kernels::convolve) there;
  decltype(&device_kernels::convolve_log64) there_log64;
};

constexpr kernel forward{"conv",
                         double_convolution,
                         numeric::convolve,
                         numeric::convolve_log64,
                         numeric::convolution_operands,
                         &device_kernels::convolve,
                         &device_kernels::convolve_log64};
constexpr kernel input_gradient{"conv_input",
                                double_input_gradient,
                                numeric::convolve_input_gradient,
                                numeric::convolve_input_gradient_log64,
                                numeric::input_gradient_operands,
                                &device_kernels::convolve_input_gradient,
                                &device_kernels::convolve_input_gradient_log64};
constexpr kernel weight_gradient{"conv_weight",
                                 double_weight_gradient,
                                 numeric::convolve_weight_gradient,
                                 numeric::convolve_weight_gradient_log64,
                                 numeric::weight_gradient_operands,
                                 &device_kernels::convolve_weight_gradient,
                                 &device_kernels::convolve_weight_gradient_log64};

/// What a kernel needs besides operands, in the type that it computes in.
struct setting {
  operator_name name;
  numeric::arithmetic mode;
  c10::ScalarType type;
  c10::MemoryFormat format;  ///< of results
  bool passes;               ///< operands and results are copies that need not outlive the call
  numeric::convolution shape{};

  setting(operator_name of, const Tensor& input, const Tensor& weight)
      : name(of),
        mode(product_mode(input.scalar_type())),
        type(compute_type(of, input.scalar_type())),
        // torch's convolutions keep channels_last where an operand has it.
        format(input.suggest_memory_format() != c10::MemoryFormat::Contiguous
                   ? input.suggest_memory_format()
                   : weight.suggest_memory_format()),
        // A session of log64 may look at its operands later.
        passes(is_copied(input, format) && mode != numeric::arithmetic::log64) {}

  Tensor take(passing_slot slot, const Tensor& operand) const {
    return passes ? laid_out(slot, operand, type) : row_major(name, operand, type);
  }
  Tensor give(const Tensor& result, c10::ScalarType as) const {
    return passes ? kept(result, as, format) : in_format(rounded_to(result, as), format);
  }
};

Tensor run(const kernel& with, const setting& how, const Tensor& first, const Tensor& second,
           IntArrayRef sizes) {
  if (how.type == c10::ScalarType::Double) return with.in_double(how.shape, first, second, sizes);
  const Tensor result =
      how.passes ? passing(passing_slot::dot_products, sizes) : make_beside(first, sizes, how.type);
  const auto* a = first.const_data_ptr<float>();
  const auto* b = second.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  const bool is_logged = how.mode == numeric::arithmetic::log64;
  if (is_on_device(first)) {
    const device_call there(first);
    if (is_logged) {
      const int bits = rounding_options().bits;
      feed_there(with.name, result,
                 std::invoke(with.there_log64, *there, how.shape, a, b, to, bits, there.queue()));
    } else {
      std::invoke(with.there, *there, how.mode, how.shape, a, b, to, there.queue());
    }
  } else if (is_logged) {
    const auto ties = with.here_log64(how.shape, a, b, to, rounding_options(), executor());
    feed(with.name, result, ties, with.operands(how.shape, a, b));
  } else {
    with.here(how.mode, how.shape, a, b, to, executor());
  }
  return result;
}

/// Whether kernels have one place, and channels are last: then the places of an image are the rows
/// of a matrix, and all three results are matrix products, of the same terms in the same order.
bool is_product(const setting& how, const geometry_options& options, const Tensor& input,
                const Tensor& weight) {
  const auto all = [](IntArrayRef values, std::int64_t value) {
    return std::all_of(values.begin(), values.end(), [&](auto other) { return other == value; });
  };
  // Rows of so few numbers are half empty registers.
  const bool few =
      input.scalar_type() == c10::kBFloat16 && weight.size(0) < 16 && weight.size(1) < 16;
  return how.passes && how.format != c10::MemoryFormat::Contiguous && options.groups == 1 && !few &&
         !options.transposed && input.numel() > 0 && weight.numel() > 0 &&
         all(weight.sizes().slice(2), 1) && all(options.stride, 1) && all(options.padding, 0);
}

/// What lies at a place is a row.
Tensor as_rows(const Tensor& x, c10::MemoryFormat format) {
  return in_format(x, format).movedim(1, -1).flatten(0, -2);
}
/// The sizes of x with so many channels.
std::vector<std::int64_t> sizes_there(const Tensor& x, std::int64_t channels) {
  std::vector<std::int64_t> out = x.sizes().vec();
  out[1] = channels;
  return out;
}
/// Rows as what lies at the places of x.
Tensor as_places(const Tensor& rows, const Tensor& x) {
  const Tensor sizes = x.select(1, 0);
  return rows.unflatten(0, sizes.sizes()).movedim(-1, 1);
}

Tensor with_bias(const Tensor& y, const std::optional<Tensor>& bias) {
  if (!bias.has_value() || !bias->defined()) return y;
  std::vector<std::int64_t> column(static_cast<std::size_t>(y.dim() - 1), 1);
  column[0] = -1;
  return y.add_(bias->to(y.scalar_type()).view(column));
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                   IntArrayRef output_padding, std::int64_t groups) {
  const geometry_options options = {stride, padding, dilation, transposed, output_padding, groups};
  const bool biased = bias.has_value() && bias->defined();
  check(input, weight, options, biased ? &*bias : nullptr);
  const c10::ScalarType type = input.scalar_type();
  setting how(on_devices("convolution"), input, weight);
  if (is_product(how, options, input, weight)) {
    const Tensor rows = as_rows(input, how.format), columns = weight.flatten(1).t();
    if (!biased) return as_places(product(how.name.text, rows, columns), input);
    const Tensor y = as_places(wide_product(how.name.text, rows, columns), input);
    return rounded_to(with_bias(y, bias), type);
  }
  const Tensor x = how.take(passing_slot::left, input);
  const Tensor w = how.take(passing_slot::right, weight);
  Tensor y;
  if (transposed) {
    const auto sizes = transposed_sizes(options, x.sizes(), w.sizes());
    how.shape = geometry(options, sizes, w.sizes(), x.size(1));
    y = run(input_gradient, how, with_zeros(x, deep_sizes(options, x.sizes())), w, sizes);
  } else {
    how.shape = geometry(options, x.sizes(), w.sizes(), w.size(0));
    y = run(forward, how, x, w, sizes_of(x.size(0), w.size(0), how.shape.output(), w.dim() - 2));
  }
  return how.give(with_bias(y, bias), type);
}

Tensor convolution_flags(const Tensor& input, const Tensor& weight,
                         const std::optional<Tensor>& bias, IntArrayRef stride, IntArrayRef padding,
                         IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                         std::int64_t groups, bool, bool, bool, bool) {
  return convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding,
                     groups);
}

Tensor bias_gradient(const Tensor& dy, c10::ScalarType type) {
  std::vector<std::int64_t> all{0};
  for (std::int64_t i = 2; i < dy.dim(); ++i) all.push_back(i);
  return rounded_to(at::sum(dy, all), type);
}

std::tuple<Tensor, Tensor, Tensor> product_backward(const setting& how, const Tensor& grad,
                                                    const Tensor& input, const Tensor& weight,
                                                    std::array<bool, 3> wanted) {
  const c10::ScalarType type = input.scalar_type();
  const Tensor dy = as_rows(grad, how.format), w = weight.flatten(1);
  Tensor dx, dw, db;
  if (wanted[0]) dx = as_places(product(how.name.text, dy, w), input);
  if (wanted[1]) {
    dw = product(how.name.text, dy.t(), as_rows(input, how.format)).view(weight.sizes());
  }
  if (wanted[2]) db = bias_gradient(grad, type);
  return {dx, dw, db};
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad, const Tensor& input, const Tensor& weight, optional_sizes,
    IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
    IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> wanted) {
  const geometry_options options = {stride, padding, dilation, transposed, output_padding, groups};
  check(input, weight, options);
  require_one_device("convolution_backward", input, grad);
  const c10::ScalarType type = input.scalar_type();
  setting how(on_devices("convolution_backward"), input, weight);
  if (grad.scalar_type() == type && is_product(how, options, input, weight)) {
    check_gradient(grad, sizes_there(input, weight.size(0)));
    return product_backward(how, grad, input, weight, wanted);
  }
  const Tensor dy = how.take(passing_slot::result, grad);
  const Tensor x = how.take(passing_slot::left, input);
  const Tensor w = how.take(passing_slot::right, weight);
  Tensor dx, dw, db;
  if (transposed) {
    check_gradient(dy, transposed_sizes(options, x.sizes(), w.sizes()));
    const auto deep = deep_sizes(options, x.sizes());
    how.shape = geometry(options, dy.sizes(), w.sizes(), x.size(1));
    if (wanted[0])
      dx = how.give(first_places(run(forward, how, dy, w, deep), x.sizes()).contiguous(), type);
    if (wanted[1])
      dw = how.give(run(weight_gradient, how, dy, with_zeros(x, deep), w.sizes()), type);
  } else {
    how.shape = geometry(options, x.sizes(), w.sizes(), w.size(0));
    check_gradient(dy, sizes_of(x.size(0), w.size(0), how.shape.output(), w.dim() - 2));
    if (wanted[0]) dx = how.give(run(input_gradient, how, dy, w, x.sizes()), type);
    if (wanted[1]) dw = how.give(run(weight_gradient, how, x, dy, w.sizes()), type);
  }
  if (wanted[2]) db = bias_gradient(dy, type);
  return {dx, dw, db};
}

std::tuple<Tensor, Tensor, Tensor> backward_overrideable(
    const Tensor& grad, const Tensor& input, const Tensor& weight, IntArrayRef stride,
    IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
    std::int64_t groups, std::array<bool, 3> wanted) {
  return convolution_backward(grad, input, weight, {}, stride, padding, dilation, transposed,
                              output_padding, groups, wanted);
}

}  // namespace

void register_convolution(registrar& r) {
  const char* note = "dot products of the mode, padding as +0; then the bias";
  r.kernel<convolution>("convolution", note);
  r.kernel<convolution>("convolution_overrideable", note);
  r.kernel<convolution_flags>("_convolution", note);
  const char* gradients = "dot products of the mode; the bias gets a sum";
  r.kernel<convolution_backward>("convolution_backward", gradients);
  r.kernel<backward_overrideable>("convolution_backward_overrideable", gradients);
  r.refused(
      {"mkldnn_convolution", "_nnpack_spatial_convolution", "conv_tbc", "_slow_conv2d_forward",
       "_slow_conv2d_backward.output_mask", "slow_conv3d_forward", "slow_conv_dilated2d",
       "slow_conv_dilated3d", "slow_conv_transpose2d", "slow_conv_transpose3d"},
      "use torch.nn.functional.conv1d/2d/3d or conv_transpose1d/2d/3d");
}

}  // namespace potl::libtorch::dispatch

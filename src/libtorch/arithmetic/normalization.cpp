// SPDX-License-Identifier: Apache-2.0
// Layer, batch and group normalisation, and norms of weights (docs/reference/neural_operators.md).
#include <array>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_weight_norm_differentiable_backward.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/norm_except_dim.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/WrapDimMinimal.h>

#include <potl/numeric/detail/normalization.hpp>

#include "device.hpp"
#include "passing.hpp"
#include "real.hpp"
#include "registrar.hpp"
#include "turning.hpp"

namespace potl::libtorch::dispatch {
namespace {

using optional_tensor = std::optional<at::Tensor>;
using three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using mask = std::array<bool, 3>;

/// Row-major values of an optional tensor; undefined when it is absent.
at::Tensor given(operator_name name, const optional_tensor& tensor, c10::ScalarType type,
                 std::int64_t count) {
  if (!tensor.has_value() || !tensor->defined()) return {};
  TORCH_CHECK(tensor->numel() == count, name.text, ": expected ", count,
              " elements, got a tensor of ", tensor->sizes());
  return row_major(name, *tensor, type);
}

template <class Real>
const Real* read(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<Real>() : nullptr;
}

template <class Real>
Real* write(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<Real>() : nullptr;
}

at::Tensor make_if(bool wanted, const at::Tensor& beside, c10::IntArrayRef sizes,
                   c10::ScalarType type) {
  return wanted ? make_beside(beside, sizes, type) : at::Tensor();
}

/// The work, on the device that x is on.
template <class Work>
void run(const at::Tensor& x, const Work& work) {
  if constexpr (std::is_same_v<decltype(work.x), const float*>) {
    if (is_on_device(x)) {
      const device_call there(x);
      return there->norm(work, there.queue());
    }
  }
  if constexpr (requires { numeric::layer_norm(work, executor()); }) {
    numeric::layer_norm(work, executor());
  } else {
    numeric::batch_norm(work, executor());
  }
}

/// The gradient in the type of what it is the gradient of; undefined stays undefined.
at::Tensor as_type_of(const at::Tensor& gradient, const optional_tensor& of) {
  return gradient.defined() && of.has_value() && of->defined()
             ? rounded_to(gradient, of->scalar_type())
             : gradient;
}
/// The same of an operand with channels, in its layout.
at::Tensor as_operand(const at::Tensor& dx, const at::Tensor& x) {
  return dx.defined() ? in_format(rounded_to(dx, x.scalar_type()), x.suggest_memory_format()) : dx;
}

std::int64_t normalized_dims(const at::Tensor& x, c10::IntArrayRef shape) {
  const auto dims = static_cast<std::int64_t>(shape.size());
  TORCH_CHECK(dims > 0 && dims <= x.dim() &&
                  x.sizes().slice(static_cast<std::size_t>(x.dim() - dims)) == shape,
              "layer_norm: the shape ", shape, " is not the end of the input's shape ", x.sizes());
  return x.dim() - dims;
}

three layer_norm(const at::Tensor& x, c10::IntArrayRef shape, const optional_tensor& weight,
                 const optional_tensor& bias, double epsilon) {
  constexpr operator_name name = on_devices("native_layer_norm");
  require_one_device(name, x, weight, bias);
  const std::int64_t lead = normalized_dims(x, shape);
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  const std::int64_t rows = product(x.sizes(), 0, lead);
  const std::int64_t count = product(x.sizes(), lead, x.dim());
  const at::Tensor from = row_major(name, x, type);
  const at::Tensor scale = given(name, weight, type, count);
  const at::Tensor shift = given(name, bias, type, count);
  sizes statistics(x.sizes().slice(0, static_cast<std::size_t>(lead)));
  statistics.resize(static_cast<std::size_t>(x.dim()), 1);
  const at::Tensor y = make_beside(x, x.sizes(), type);
  const at::Tensor mean = make_beside(x, statistics, type);
  const at::Tensor reciprocal = make_beside(x, statistics, type);
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    run(x, numeric::layer_norm_forward<Real>{rows, count, epsilon, read<Real>(from),
                                             read<Real>(scale), read<Real>(shift), write<Real>(y),
                                             write<Real>(mean), write<Real>(reciprocal)});
  });
  return {rounded_to(y, x.scalar_type()), mean, reciprocal};
}

three layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, c10::IntArrayRef shape,
                          const at::Tensor& mean, const at::Tensor& reciprocal,
                          const optional_tensor& weight, const optional_tensor& bias, mask wanted) {
  constexpr operator_name name = on_devices("native_layer_norm_backward");
  require_one_device(name, x, dy, mean, reciprocal, weight);
  const std::int64_t lead = normalized_dims(x, shape);
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  const std::int64_t rows = product(x.sizes(), 0, lead);
  const std::int64_t count = product(x.sizes(), lead, x.dim());
  const at::Tensor gradient = row_major(name, dy, type);
  const at::Tensor from = row_major(name, x, type);
  const at::Tensor centre = row_major(name, mean, type);
  const at::Tensor factor = row_major(name, reciprocal, type);
  const at::Tensor scale = given(name, weight, type, count);
  const at::Tensor dx = make_if(wanted[0], x, x.sizes(), type);
  const at::Tensor dweight = make_if(wanted[1], x, shape, type);
  const at::Tensor dbias = make_if(wanted[2], x, shape, type);
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    run(x, numeric::layer_norm_backward<Real>{rows, count, read<Real>(gradient), read<Real>(from),
                                              read<Real>(centre), read<Real>(factor),
                                              read<Real>(scale), write<Real>(dx),
                                              write<Real>(dweight), write<Real>(dbias)});
  });
  return {as_type_of(dx, x), as_type_of(dweight, weight), as_type_of(dbias, bias)};
}

/// A value for each channel of what is [batch, channels, places].
at::Tensor by_channel(const at::Tensor& values) { return values.view({1, -1, 1}); }

// On a device a group norm is a layer norm of each group without weights, and what comes before or
// behind it element by element; the operations are the CPU's.
three group_norm_there(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                       std::int64_t batch, std::int64_t channels, std::int64_t size,
                       std::int64_t groups, double epsilon) {
  const at::Tensor mean = make_beside(x, {batch, groups}, at::kFloat);
  const at::Tensor reciprocal = at::empty_like(mean);
  at::Tensor y = at::empty_like(x);
  run(x, numeric::layer_norm_forward<float>{batch * groups, channels / groups * size, epsilon,
                                            read<float>(x), nullptr, nullptr, write<float>(y),
                                            write<float>(mean), write<float>(reciprocal)});
  const at::Tensor h = y.view({batch, channels, size});
  if (scale.defined() && shift.defined()) {
    y = at::addcmul(by_channel(shift).expand_as(h), h, by_channel(scale).expand_as(h));
  } else if (scale.defined()) {
    y = h * by_channel(scale);
  } else if (shift.defined()) {
    y = h + by_channel(shift);
  }
  return {y.view(x.sizes()), mean, reciprocal};
}
three group_norm_backward_there(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                                const at::Tensor& reciprocal, const at::Tensor& scale,
                                std::int64_t batch, std::int64_t channels, std::int64_t size,
                                std::int64_t groups, mask wanted) {
  const std::int64_t rows = batch * groups, count = channels / groups * size;
  at::Tensor dx, dweight, dbias;
  const auto sum = [&](const at::Tensor& terms) {
    return terms.view({batch, channels, size})
        .sum(at::IntArrayRef{0, 2});  // torch 2.11 takes names too
  };
  if (wanted[1]) {
    const at::Tensor h =
        (x.view({rows, count}) - mean.view({rows, 1})) * reciprocal.view({rows, 1});
    dweight = sum(dy.view({rows, count}) * h);
  }
  if (wanted[2]) dbias = sum(dy);
  if (wanted[0]) {
    const at::Tensor slope =
        scale.defined() ? dy.view({batch, channels, size}) * by_channel(scale) : dy;
    dx = at::empty_like(x);
    run(x, numeric::layer_norm_backward<float>{rows, count, read<float>(slope), read<float>(x),
                                               read<float>(mean), read<float>(reciprocal), nullptr,
                                               write<float>(dx), nullptr, nullptr});
  }
  return {dx, dweight, dbias};
}

three group_norm(const at::Tensor& x, const optional_tensor& weight, const optional_tensor& bias,
                 std::int64_t batch, std::int64_t channels, std::int64_t size, std::int64_t groups,
                 double epsilon) {
  constexpr operator_name name = on_devices("native_group_norm");
  require_one_device(name, x, weight, bias);
  TORCH_CHECK(groups > 0 && channels % groups == 0, name.text, ": ", channels,
              " channels are not a multiple of ", groups, " groups");
  TORCH_CHECK(x.numel() == batch * channels * size, name.text, ": the input has shape ", x.sizes());
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  const rows_of rows(name, x, type);
  const at::Tensor from = rows.take(passing_slot::left, x);
  const at::Tensor scale = given(name, weight, type, channels);
  const at::Tensor shift = given(name, bias, type, channels);
  if (is_on_device(x)) {
    auto [out, centre, factor] =
        group_norm_there(from, scale, shift, batch, channels, size, groups, epsilon);
    return {in_format(rounded_to(out, x.scalar_type()), x.suggest_memory_format()), centre, factor};
  }
  const at::Tensor y = rows.make();
  const at::Tensor mean = make({batch, groups}, type);
  const at::Tensor reciprocal = make({batch, groups}, type);
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    numeric::group_norm(
        numeric::group_norm_forward<Real>{batch, channels, size, groups, epsilon, read<Real>(from),
                                          read<Real>(scale), read<Real>(shift), write<Real>(y),
                                          write<Real>(mean), write<Real>(reciprocal)},
        executor());
  });
  return {rows.give(y), mean, reciprocal};
}

three group_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                          const at::Tensor& reciprocal, const optional_tensor& weight,
                          std::int64_t batch, std::int64_t channels, std::int64_t size,
                          std::int64_t groups, mask wanted) {
  constexpr operator_name name = on_devices("native_group_norm_backward");
  require_one_device(name, x, dy, mean, reciprocal, weight);
  TORCH_CHECK(x.numel() == batch * channels * size && dy.numel() == x.numel(), name.text,
              ": the input has shape ", x.sizes(), ", its gradient ", dy.sizes());
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  const rows_of rows(name, x, type);
  const at::Tensor gradient = rows.take(passing_slot::right, dy);
  const at::Tensor from = rows.take(passing_slot::left, x);
  const at::Tensor centre = row_major(name, mean, type);
  const at::Tensor factor = row_major(name, reciprocal, type);
  const at::Tensor scale = given(name, weight, type, channels);
  if (is_on_device(x)) {
    auto [of_x, of_weight, of_bias] = group_norm_backward_there(
        gradient, from, centre, factor, scale, batch, channels, size, groups, wanted);
    return {as_operand(of_x, x), as_type_of(of_weight, weight), as_type_of(of_bias, weight)};
  }
  const at::Tensor dx = wanted[0] ? rows.make() : at::Tensor();
  const at::Tensor dweight = make_if(wanted[1], x, {channels}, type);
  const at::Tensor dbias = make_if(wanted[2], x, {channels}, type);
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    numeric::group_norm(
        numeric::group_norm_backward<Real>{batch, channels, size, groups, read<Real>(gradient),
                                           read<Real>(from), read<Real>(centre), read<Real>(factor),
                                           read<Real>(scale), write<Real>(dx), write<Real>(dweight),
                                           write<Real>(dbias)},
        executor());
  });
  return {wanted[0] ? rows.give(dx) : dx, as_type_of(dweight, weight), as_type_of(dbias, weight)};
}

/// How a batch norm takes its operands: with channels last every place is a sample, and the
/// elements of a channel follow one another in the same order.
struct channelwise {
  channelwise(operator_name of, const at::Tensor& x, c10::ScalarType computed)
      : name(of),
        type(computed),
        format(is_on_device(x) ? at::MemoryFormat::Contiguous : x.suggest_memory_format()) {
    const std::int64_t places = product(x.sizes(), 2, x.dim());
    const bool is_last = format != at::MemoryFormat::Contiguous;
    batch = is_last ? x.size(0) * places : x.size(0);
    size = is_last ? 1 : places;
  }
  at::Tensor take(passing_slot slot, const at::Tensor& x) const {
    require_plain(name, x);
    require_float(name, x, type);
    return laid_out(slot, x, type, format);
  }
  /// Like `taken`; of x, which was not.
  at::Tensor make_like(const at::Tensor& taken, const at::Tensor& x) const {
    return is_widened(x) ? passing(passing_slot::result, x.sizes(), taken.strides())
                         : at::empty(x.sizes(), x.options().dtype(type), format);
  }
  operator_name name;
  c10::ScalarType type;
  at::MemoryFormat format;
  std::int64_t batch, size;
};

three batch_norm(const at::Tensor& x, const optional_tensor& weight, const optional_tensor& bias,
                 const optional_tensor& running_mean, const optional_tensor& running_variance,
                 bool training, double momentum, double epsilon) {
  constexpr operator_name name = on_devices("native_batch_norm");
  require_one_device(name, x, weight, bias, running_mean, running_variance);
  TORCH_CHECK(x.dim() >= 2, name.text, ": the input needs at least 2 dimensions");
  const std::int64_t channels = x.size(1);
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  const channelwise order(name, x, type);
  const at::Tensor from = order.take(passing_slot::left, x);
  const at::Tensor scale = given(name, weight, type, channels);
  const at::Tensor shift = given(name, bias, type, channels);
  const bool has_running = running_mean.has_value() && running_mean->defined() &&
                           running_variance.has_value() && running_variance->defined();
  TORCH_CHECK(training || has_running,
              "Expected running_mean and running_var to be defined when training=False");
  const at::Tensor y = order.make_like(from, x);
  const at::Tensor mean = make_beside(x, {channels}, type);
  const at::Tensor reciprocal = make_beside(x, {channels}, type);
  const auto compute = [&](const at::Tensor& old_mean, const at::Tensor& old_variance) {
    with_real(type, [&](auto zero) {
      using Real = decltype(zero);
      numeric::batch_norm_forward<Real> work;
      work.batch = order.batch;
      work.channels = channels;
      work.size = order.size;
      work.epsilon = epsilon;
      work.momentum = momentum;
      work.training = training;
      work.x = read<Real>(from);
      work.weight = read<Real>(scale);
      work.bias = read<Real>(shift);
      work.running_mean = write<Real>(old_mean);
      work.running_variance = write<Real>(old_variance);
      work.y = write<Real>(y);
      work.mean = write<Real>(mean);
      work.reciprocal = write<Real>(reciprocal);
      run(x, work);
    });
  };
  if (has_running && training) {
    const in_place new_mean(name, *running_mean, type);
    const in_place new_variance(name, *running_variance, type);
    compute(new_mean.work(), new_variance.work());
    new_mean.finish();
    new_variance.finish();
  } else if (has_running) {
    compute(given(name, running_mean, type, channels),
            given(name, running_variance, type, channels));
  } else {
    compute({}, {});
  }
  const at::Tensor out = in_format(rounded_to(y, x.scalar_type()), x.suggest_memory_format());
  // Like torch: out of training nothing is saved.
  if (!training) return {out, make_beside(x, {0}, type), make_beside(x, {0}, type)};
  return {out, mean, reciprocal};
}

three batch_norm_backward(const at::Tensor& dy, const at::Tensor& x, const optional_tensor& weight,
                          const optional_tensor& running_mean,
                          const optional_tensor& running_variance,
                          const optional_tensor& saved_mean,
                          const optional_tensor& saved_reciprocal, bool training, double epsilon,
                          mask wanted) {
  constexpr operator_name name = on_devices("native_batch_norm_backward");
  require_one_device(name, x, dy, weight, running_mean, running_variance, saved_mean,
                     saved_reciprocal);
  const std::int64_t channels = x.size(1);
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  const channelwise order(name, x, type);
  const at::Tensor gradient = order.take(passing_slot::right, dy);
  const at::Tensor from = order.take(passing_slot::left, x);
  const at::Tensor scale = given(name, weight, type, channels);
  const at::Tensor centre = given(name, training ? saved_mean : running_mean, type, channels);
  at::Tensor factor = given(name, training ? saved_reciprocal : running_variance, type, channels);
  TORCH_CHECK(centre.defined() && factor.defined(), name.text, ": the statistics are missing");
  if (!training) factor = (factor + epsilon).sqrt().reciprocal();
  at::Tensor dx = wanted[0] ? order.make_like(from, x) : at::Tensor();
  const at::Tensor dweight = make_if(wanted[1], x, {channels}, type);
  const at::Tensor dbias = make_if(wanted[2], x, {channels}, type);
  // Out of training the gradient of x is one product for each element.
  const bool apart = !training && is_on_device(x);
  if (apart && dx.defined()) {
    std::vector<std::int64_t> column(static_cast<std::size_t>(x.dim()), 1);
    column[1] = channels;
    const at::Tensor slope = scale.defined() ? factor * scale : factor;
    at::mul_out(dx, gradient, slope.view(column));
  }
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    run(x, numeric::batch_norm_backward<Real>{
               order.batch, channels, order.size, training || apart, read<Real>(gradient),
               read<Real>(from), read<Real>(centre), read<Real>(factor), read<Real>(scale),
               apart ? nullptr : write<Real>(dx), write<Real>(dweight), write<Real>(dbias)});
  });
  return {as_operand(dx, x), as_type_of(dweight, weight), as_type_of(dbias, weight)};
}

three batch_norm_legit(const at::Tensor& x, const optional_tensor& weight,
                       const optional_tensor& bias, at::Tensor& running_mean,
                       at::Tensor& running_variance, bool training, double momentum,
                       double epsilon) {
  return batch_norm(x, weight, bias, running_mean, running_variance, training, momentum, epsilon);
}

three batch_norm_legit_no_stats(const at::Tensor& x, const optional_tensor& weight,
                                const optional_tensor& bias, bool training, double momentum,
                                double epsilon) {
  return batch_norm(x, weight, bias, {}, {}, training, momentum, epsilon);
}

four batch_norm_with_update(const at::Tensor& x, const optional_tensor& weight,
                            const optional_tensor& bias, at::Tensor& running_mean,
                            at::Tensor& running_variance, double momentum, double epsilon) {
  auto [y, mean, reciprocal] =
      batch_norm(x, weight, bias, running_mean, running_variance, true, momentum, epsilon);
  return {y, mean, reciprocal, make({0}, at::kByte)};
}

three batch_norm_backward_with_reserve(const at::Tensor& dy, const at::Tensor& x,
                                       const at::Tensor& weight,
                                       const optional_tensor& running_mean,
                                       const optional_tensor& running_variance,
                                       const optional_tensor& saved_mean,
                                       const optional_tensor& saved_reciprocal, bool training,
                                       double epsilon, mask wanted, const at::Tensor&) {
  return batch_norm_backward(dy, x, weight, running_mean, running_variance, saved_mean,
                             saved_reciprocal, training, epsilon, wanted);
}

/// What torch calls for tensors of a CUDA device, like the one above.
four cudnn_batch_norm(const at::Tensor& x, const at::Tensor& weight, const optional_tensor& bias,
                      const optional_tensor& running_mean, const optional_tensor& running_variance,
                      bool training, double momentum, double epsilon) {
  auto [y, mean, reciprocal] =
      batch_norm(x, weight, bias, running_mean, running_variance, training, momentum, epsilon);
  return {y, mean, reciprocal, make_beside(x, {0}, at::kByte)};
}
three cudnn_batch_norm_backward(const at::Tensor& x, const at::Tensor& dy, const at::Tensor& weight,
                                const optional_tensor& running_mean,
                                const optional_tensor& running_variance,
                                const optional_tensor& saved_mean,
                                const optional_tensor& saved_reciprocal, double epsilon,
                                const at::Tensor&) {
  return batch_norm_backward(dy, x, weight, running_mean, running_variance, saved_mean,
                             saved_reciprocal, true, epsilon, {true, true, true});
}

std::tuple<at::Tensor, at::Tensor> weight_norm(const at::Tensor& v, const at::Tensor& g,
                                               std::int64_t dim) {
  const at::Tensor norms = at::norm_except_dim(v, 2, dim);
  return {v * (g / norms), norms};
}

std::tuple<at::Tensor, at::Tensor> weight_norm_backward(const at::Tensor& gradient,
                                                        const at::Tensor& v, const at::Tensor& g,
                                                        const at::Tensor& norms, std::int64_t dim) {
  return at::_weight_norm_differentiable_backward(gradient, v, g, norms, dim);
}

at::Tensor renorm(const at::Tensor& x, const at::Scalar& p, std::int64_t dim,
                  const at::Scalar& largest) {
  TORCH_CHECK(x.dim() > 1, "renorm: input needs at least 2 dimensions, got ", x.dim());
  dim = c10::maybe_wrap_dim(dim, x.dim());
  sizes others;
  for (std::int64_t axis = 0; axis < x.dim(); ++axis) {
    if (axis != dim) others.push_back(axis);
  }
  const at::Tensor norms = at::linalg_vector_norm(x, p, c10::IntArrayRef(others), /*keepdim=*/true);
  const double limit = largest.toDouble();
  return at::where(norms > limit, x * (limit / (norms + 1e-7)), x);
}

}  // namespace

void register_normalization(registrar& r) {
  const char* note =
      "mean and variance in the order of docs/reference/reduction.md, then as in "
      "docs/reference/neural_operators.md";
  r.kernel<layer_norm>("native_layer_norm", note);
  r.kernel<layer_norm_backward>("native_layer_norm_backward", note);
  r.kernel<group_norm>("native_group_norm", note);
  r.kernel<group_norm_backward>("native_group_norm_backward", note);
  r.kernel<batch_norm>("native_batch_norm", note, {"native_batch_norm.out"});
  r.kernel<batch_norm_backward>("native_batch_norm_backward", note);
  r.kernel<batch_norm_legit>("_native_batch_norm_legit", note, {"_native_batch_norm_legit.out"});
  r.kernel<batch_norm_legit_no_stats>("_native_batch_norm_legit.no_stats", note,
                                      {"_native_batch_norm_legit.no_stats_out"});
  r.kernel<batch_norm_with_update>("_batch_norm_with_update", note,
                                   {"_batch_norm_with_update.out"});
  r.kernel<batch_norm_backward_with_reserve>("batch_norm_backward", note);
  r.kernel<cudnn_batch_norm>("cudnn_batch_norm", note);
  r.kernel<cudnn_batch_norm_backward>("cudnn_batch_norm_backward", note);
  r.composed({"_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training",
              "_batch_norm_with_update_functional", "_batch_norm_no_update"},
             "another form of batch normalisation");
  r.refused({"batch_norm_update_stats"}, "use torch.nn.BatchNorm1d and its relatives");
  r.kernel<weight_norm>("_weight_norm_interface", "v (g / norm)");
  r.kernel<weight_norm_backward>("_weight_norm_interface_backward",
                                 "torch's composition for second derivatives");
  r.kernel<renorm>("renorm", "x (max_norm / (norm + 1e-7)) where the norm is larger",
                   {"renorm.out", "renorm_"});
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// Softmax, its logarithm and the logarithm of the sum of exponentials.
#include <algorithm>

#include <c10/core/WrapDimMinimal.h>

#include <potl/numeric/detail/softmax.hpp>

#include "device.hpp"
#include "real.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using numeric::reduction_shape;

reduction_shape along(const at::Tensor& x, std::int64_t dim) {
  if (x.dim() == 0) return {1, 1, 1};
  return {product(x.sizes(), 0, dim), x.size(dim), product(x.sizes(), dim + 1, x.dim())};
}

enum class kind { softmax, log_softmax };

template <kind Kind>
at::Tensor forward(const at::Tensor& x, std::int64_t dim, bool half_to_float) {
  constexpr operator_name name = on_devices(Kind == kind::softmax ? "_softmax" : "_log_softmax");
  TORCH_CHECK(!half_to_float || !x.device().is_cpu(), name.text,
              ": half to float conversion is not supported on CPU");
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  dim = c10::maybe_wrap_dim(dim, x.dim());
  const reduction_shape shape = along(x, dim);
  if (is_on_device(x) && shape.inner != 1) {
    return forward<Kind>(x.transpose(dim, -1), -1, half_to_float).transpose(dim, -1).contiguous();
  }
  const at::Tensor from = row_major(name, x, type);
  const at::Tensor y = make_beside(x, x.sizes(), type);
  if (x.numel() != 0 && is_on_device(x)) {
    const device_call there(x);
    const float* in = from.const_data_ptr<float>();
    float* out = y.mutable_data_ptr<float>();
    Kind == kind::softmax ? there->softmax(shape, in, out, there.queue())
                          : there->log_softmax(shape, in, out, there.queue());
  } else if (x.numel() != 0) {
    with_real(type, [&](auto zero) {
      using Real = decltype(zero);
      const Real* in = from.const_data_ptr<Real>();
      Real* out = y.mutable_data_ptr<Real>();
      Kind == kind::softmax ? numeric::softmax(shape, in, out, executor())
                            : numeric::log_softmax(shape, in, out, executor());
    });
  }
  return rounded_to(y, half_to_float ? c10::ScalarType::Float : x.scalar_type());
}

template <kind Kind>
at::Tensor backward(const at::Tensor& dy, const at::Tensor& y, std::int64_t dim,
                    c10::ScalarType input_type) {
  constexpr operator_name name =
      on_devices(Kind == kind::softmax ? "_softmax_backward_data" : "_log_softmax_backward_data");
  require_one_device(name, y, dy);
  TORCH_CHECK(dy.sizes() == y.sizes(), name.text, ": the gradient has shape ", dy.sizes(),
              ", the output ", y.sizes());
  const c10::ScalarType type = compute_type(name, dy.scalar_type());
  dim = c10::maybe_wrap_dim(dim, y.dim());
  const reduction_shape shape = along(y, dim);
  if (is_on_device(y) && shape.inner != 1) {
    return backward<Kind>(dy.transpose(dim, -1), y.transpose(dim, -1), -1, input_type)
        .transpose(dim, -1)
        .contiguous();
  }
  const at::Tensor gradient = row_major(name, dy, type);
  const at::Tensor output = row_major(name, y, type);
  const at::Tensor dx = make_beside(y, y.sizes(), type);
  if (y.numel() != 0 && is_on_device(y)) {
    const device_call there(y);
    const float* of_output = gradient.const_data_ptr<float>();
    const float* in = output.const_data_ptr<float>();
    float* out = dx.mutable_data_ptr<float>();
    Kind == kind::softmax ? there->softmax_backward(shape, of_output, in, out, there.queue())
                          : there->log_softmax_backward(shape, of_output, in, out, there.queue());
  } else if (y.numel() != 0) {
    with_real(type, [&](auto zero) {
      using Real = decltype(zero);
      const Real* of_output = gradient.const_data_ptr<Real>();
      const Real* in = output.const_data_ptr<Real>();
      Real* out = dx.mutable_data_ptr<Real>();
      Kind == kind::softmax ? numeric::softmax_backward(shape, of_output, in, out, executor())
                            : numeric::log_softmax_backward(shape, of_output, in, out, executor());
    });
  }
  return rounded_to(dx, input_type);
}

at::Tensor logsumexp(const at::Tensor& x, c10::IntArrayRef dims, bool keepdim) {
  const char* name = "logsumexp";
  const c10::ScalarType type = compute_type(name, x.scalar_type());
  const std::int64_t count = x.dim();
  std::vector<bool> reduced(static_cast<std::size_t>(count), dims.empty());
  for (const std::int64_t dim : dims) {
    const std::int64_t wrapped = c10::maybe_wrap_dim(dim, count);
    if (count > 0) reduced[static_cast<std::size_t>(wrapped)] = true;
  }
  // The reduced dimensions last, in their order.
  sizes order, kept, with_ones;
  std::int64_t terms = 1;
  for (const bool wanted : {false, true}) {
    for (std::int64_t dim = 0; dim < count; ++dim) {
      if (reduced[static_cast<std::size_t>(dim)] != wanted) continue;
      order.push_back(dim);
      if (wanted) terms *= x.size(dim);
    }
  }
  for (std::int64_t dim = 0; dim < count; ++dim) {
    const bool gone = reduced[static_cast<std::size_t>(dim)];
    if (!gone) kept.push_back(x.size(dim));
    with_ones.push_back(gone ? 1 : x.size(dim));
  }
  const at::Tensor from = row_major(on_devices(name), x.permute(order), type);
  const at::Tensor y = make_beside(x, keepdim ? with_ones : kept, type);
  if (is_on_device(x)) {
    TORCH_CHECK(terms > 0 || y.numel() == 0, name, ": there is nothing to add");
    const device_call there(x);
    there->logsumexp({y.numel(), terms, 1}, from.const_data_ptr<float>(),
                     y.mutable_data_ptr<float>(), there.queue());
    return rounded_to(y, result_type(x));
  }
  with_real(type, [&](auto zero) {
    using Real = decltype(zero);
    numeric::logsumexp({y.numel(), terms, 1}, from.const_data_ptr<Real>(),
                       y.mutable_data_ptr<Real>(), executor());
  });
  return rounded_to(y, result_type(x));
}

}  // namespace

void register_softmax(registrar& r) {
  const char* note =
      "the exact maximum, potl's exp, a sum in the order of docs/reference/reduction.md, one "
      "division";
  r.kernel<forward<kind::softmax>>("_softmax", note, {"_softmax.out"});
  r.kernel<backward<kind::softmax>>("_softmax_backward_data", "y (dy - T(dy y))",
                                    {"_softmax_backward_data.out"});
  const char* log = "(x - m) - log(T(exp(x - m))), m the exact maximum";
  r.kernel<forward<kind::log_softmax>>("_log_softmax", log, {"_log_softmax.out"});
  r.kernel<backward<kind::log_softmax>>("_log_softmax_backward_data", "dy - exp(y) T(dy)",
                                        {"_log_softmax_backward_data.out"});
  r.kernel<logsumexp>("logsumexp", "m + log(T(exp(x - m))), m the exact maximum",
                      {"logsumexp.out"});
  r.derived("softmax.int", {"softmax.int_out"});
  r.derived("log_softmax.int", {"log_softmax.int_out"});
  r.composed({"_safe_softmax"}, "_softmax; 0 where a row is -inf");
  r.refused({"_masked_softmax", "_masked_softmax_backward"},
            "use masked_fill with -inf, and torch.softmax");
}

}  // namespace potl::libtorch::dispatch

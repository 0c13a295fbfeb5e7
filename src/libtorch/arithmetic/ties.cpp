// SPDX-License-Identifier: Apache-2.0
// Gradients about which versions of torch differ. Where one is wanted, the operator is composed of
// others, about whose gradients versions agree, and gets the values of the stock operator.
// Bounds, fmax and fmin, where a value equals its bound or is NaN: the gradients of torch 2.13.
#include <algorithm>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/combinations_ops.h>
#include <ATen/ops/fmax_ops.h>
#include <ATen/ops/fmin_ops.h>
#include <ATen/ops/ldexp_ops.h>
#include <ATen/ops/linalg_det_ops.h>
#include <ATen/ops/log10_ops.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/trace_ops.h>
#include <ATen/ops/where.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "fallback.hpp"
#include "forms.hpp"
#include "mode.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using optional_scalar = std::optional<Scalar>;
using optional_tensor = std::optional<Tensor>;

/// What is left for torch's operator, its gradient included.
constexpr c10::DispatchKeySet stock(c10::DispatchKeySet::FULL_AFTER, key_above_autograd);

bool is_followed(const Tensor& x) {
  return x.defined() &&
         ((at::GradMode::is_enabled() && x.requires_grad()) || x._fw_grad(0).defined());
}
bool is_followed(const optional_tensor& x) { return x && is_followed(*x); }
bool is_followed(const Scalar&) { return false; }
bool is_followed(const optional_scalar&) { return false; }
bool is_followed(const c10::IValue& x) {
  if (x.isTensor()) return is_followed(x.toTensor());
  if (!x.isTensorList()) return false;
  const auto all = x.toTensorVector();
  return std::any_of(all.begin(), all.end(), [](const Tensor& one) { return is_followed(one); });
}

/// Whether this call comes from above autograd, which wants a gradient of one of these.
template <class... Operands>
bool has_gradient(const Operands&... operands) {
  return !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradFunctionality) &&
         (is_followed(operands) || ...);
}

Tensor unfollowed(const Tensor& x) { return x.defined() ? x.detach() : x; }
optional_tensor unfollowed(const optional_tensor& x) {
  return x ? optional_tensor(unfollowed(*x)) : x;
}
const Scalar& unfollowed(const Scalar& x) { return x; }
const optional_scalar& unfollowed(const optional_scalar& x) { return x; }

bool is_given(const optional_scalar& x) { return x.has_value(); }
bool is_given(const optional_tensor& x) { return x && x->defined(); }

/// A result with the gradient that it has, and other values.
Tensor with_values(const Tensor& result, const Tensor& values) {
  result.detach().copy_(values);
  return result;
}

enum class side { both, low, high };

template <class Bound>
struct limits {
  std::optional<Bound> low, high;
};
template <side Side, class Bound>
limits<Bound> limits_of(const std::optional<Bound>& low, const std::optional<Bound>& high) {
  return {low, high};
}
template <side Side, class Bound>
limits<Bound> limits_of(const Bound& bound) {
  if constexpr (Side == side::low) return {bound, std::nullopt};
  return {std::nullopt, bound};
}

/// Where x has the gradient.
template <class Bound>
Tensor is_within(const Tensor& x, const limits<Bound>& of) {
  if (!is_given(of.high)) return x >= *of.low;
  const Tensor is_low = x <= *of.high;
  return is_given(of.low) ? is_low.logical_and(x >= *of.low) : is_low;
}

/// The values of the others, with the gradients of the bounds. Of equal bounds the lower one has
/// none; of bounds that cross, the upper one has it everywhere.
Tensor beyond(const Tensor&, const limits<Scalar>&, const Tensor& values) { return values; }
Tensor beyond(const Tensor& x, const limits<Tensor>& of, const Tensor& values) {
  Tensor out = values;
  if (has_gradient(of.high)) {
    const Tensor is_above = x > *of.high;
    out = at::where(is_given(of.low) ? is_above.logical_or(*of.high < *of.low) : is_above, *of.high,
                    out);
  }
  if (has_gradient(of.low)) {
    const Tensor is_below = x < *of.low;
    out = at::where(is_given(of.high) ? is_below.logical_and(*of.low < *of.high) : is_below,
                    *of.low, out);
  }
  return out;
}

template <class Stock, side Side, class... Bounds>
Tensor bounded(keys_t keys, const Tensor& x, const Bounds&... bounds) {
  if (!has_gradient(x, bounds...)) return Stock::redispatch(keys & stock, x, bounds...);
  const Tensor values = Stock::redispatch(keys & stock, unfollowed(x), unfollowed(bounds)...);
  const auto of = limits_of<Side>(bounds...);
  return with_values(at::where(is_within(x, of), x, beyond(x, of, values)), values);
}

template <class Stock, side Side, class... Bounds>
Tensor& bounded_in(keys_t keys, Tensor& x, const Bounds&... bounds) {
  if (!has_gradient(x, bounds...)) return Stock::redispatch(keys & stock, x, bounds...);
  const Tensor before = x.detach();
  Tensor values = before.clone();
  Stock::redispatch(keys & stock, values, unfollowed(bounds)...);
  const auto of = limits_of<Side>(bounds...);
  const Tensor is_beyond = is_within(before, of).logical_not();
  if (has_gradient(bounds...)) {
    const Tensor others = beyond(before, of, values).to(x.scalar_type());
    x.masked_scatter_(is_beyond, others.masked_select(is_beyond));
  } else {
    x.masked_fill_(is_beyond, 0);
  }
  with_values(x, values);
  return x;
}

/// Of equal numbers, and where the second is NaN, the first has the gradient.
template <class Stock, bool IsLarger>
Tensor extreme(keys_t keys, const Tensor& x, const Tensor& y) {
  if (!has_gradient(x, y)) return Stock::redispatch(keys & stock, x, y);
  const Tensor values = Stock::redispatch(keys & stock, unfollowed(x), unfollowed(y));
  const Tensor is_first = (IsLarger ? x >= y : x <= y).logical_or(y.isnan());
  return with_values(at::where(is_first, x, y), values);
}

constexpr double log_of_ten = 0x1.26bb1bbb55516p+1;

/// In double, versions divide by different neighbours of log 10. In float32 these are the same.
bool is_wide(const Tensor& x) { return x.scalar_type() == at::kDouble && has_gradient(x); }
Tensor log10(keys_t keys, const Tensor& x) {
  if (!is_wide(x)) return at::_ops::log10::redispatch(keys & stock, x);
  return with_values(x.log() / log_of_ten, unfollowed(x).log10());
}
Tensor& log10_in(keys_t keys, Tensor& x) {
  if (!is_wide(x)) return at::_ops::log10_::redispatch(keys & stock, x);
  const Tensor values = unfollowed(x).log10();
  with_values(x.log_().div_(log_of_ten), values);
  return x;
}

/// Of a whole exponent, torch before 2.14 has an integer power in the gradient, which is 0 for
/// 2^-1. The product alone is infinite where the power is.
Tensor power_of_two(const Tensor& x, const Tensor& exponent) {
  return at::pow(at::scalar_tensor(2, x.options()), exponent);
}
Tensor ldexp_of(keys_t keys, const Tensor& x, const Tensor& exponent) {
  if (!is_integral(exponent) || !has_gradient(x)) {
    return at::_ops::ldexp_Tensor::redispatch(keys & stock, x, exponent);
  }
  const Tensor values = at::_ops::ldexp_Tensor::redispatch(keys & stock, unfollowed(x), exponent);
  return with_values(x * power_of_two(x, exponent), values);
}
Tensor& ldexp_in(keys_t keys, Tensor& x, const Tensor& exponent) {
  if (!is_integral(exponent) || !has_gradient(x)) {
    return at::_ops::ldexp_::redispatch(keys & stock, x, exponent);
  }
  Tensor values = unfollowed(x).clone();
  at::_ops::ldexp_::redispatch(keys & stock, values, exponent);
  with_values(x.mul_(power_of_two(x, exponent)), values);
  return x;
}

/// Versions select in different ways, which add gradients in different orders.
Tensor combinations(keys_t keys, const Tensor& x, std::int64_t count, bool with_replacement) {
  const auto of = [&](const Tensor& y) {
    return at::_ops::combinations::redispatch(keys & stock, y, count, with_replacement);
  };
  if (!has_gradient(x) || x.dim() != 1) return of(x);
  const Tensor places = of(at::arange(x.numel(), x.options().dtype(at::kLong)));
  return x.index_select(0, places.reshape(-1)).view(places.sizes());
}

/// Of a matrix with more rows than columns, torch 2.11 goes on below the diagonal.
Tensor trace_of(keys_t keys, const Tensor& x) {
  if (!has_gradient(x) || x.dim() != 2) return at::_ops::trace::redispatch(keys & stock, x);
  return with_values(x.diagonal().sum(), at::_ops::trace::redispatch(keys & stock, unfollowed(x)));
}

/// Of a single number, torch 2.11 divides the determinant by it.
Tensor det_of(keys_t keys, const Tensor& x) {
  if (!has_gradient(x) || x.dim() < 2 || x.size(-1) != 1 || x.size(-2) != 1) {
    return at::_ops::linalg_det::redispatch(keys & stock, x);
  }
  return with_values(x.clone().squeeze(-1).squeeze(-1),
                     at::_ops::linalg_det::redispatch(keys & stock, unfollowed(x)));
}

void unfollowed_or_refuse(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                          ::torch::jit::Stack* stack) {
  const std::size_t count = handle.schema().arguments().size();
  for (std::size_t i = stack->size() - count; i < stack->size(); ++i) {
    if (lets_through() || !has_gradient((*stack)[i])) continue;
    refuse("the gradient of " + handle.schema().name() + " is another in other versions of torch",
           "call torch.clamp for each tensor");
  }
  handle.redispatchBoxed(keys & stock, stack);
}

}  // namespace

void register_ties() {
  namespace ops = at::_ops;
  constexpr c10::DispatchKey above = key_above_autograd;
  auto* others = new ::torch::Library(::torch::Library::IMPL, "_", above, __FILE__, __LINE__);
  others->fallback(::torch::CppFunction::makeFallthrough());
  auto& r = *new ::torch::Library(::torch::Library::IMPL, "aten", above, __FILE__, __LINE__);
  using scalar = optional_scalar;
  using tensor = optional_tensor;
  r.impl("clamp", TORCH_FN((bounded<ops::clamp, side::both, scalar, scalar>)));
  r.impl("clamp_", TORCH_FN((bounded_in<ops::clamp_, side::both, scalar, scalar>)));
  r.impl("clamp.Tensor", TORCH_FN((bounded<ops::clamp_Tensor, side::both, tensor, tensor>)));
  r.impl("clamp_.Tensor", TORCH_FN((bounded_in<ops::clamp__Tensor, side::both, tensor, tensor>)));
  r.impl("clamp_min", TORCH_FN((bounded<ops::clamp_min, side::low, Scalar>)));
  r.impl("clamp_min_", TORCH_FN((bounded_in<ops::clamp_min_, side::low, Scalar>)));
  r.impl("clamp_min.Tensor", TORCH_FN((bounded<ops::clamp_min_Tensor, side::low, Tensor>)));
  r.impl("clamp_min_.Tensor", TORCH_FN((bounded_in<ops::clamp_min__Tensor, side::low, Tensor>)));
  r.impl("clamp_max", TORCH_FN((bounded<ops::clamp_max, side::high, Scalar>)));
  r.impl("clamp_max_", TORCH_FN((bounded_in<ops::clamp_max_, side::high, Scalar>)));
  r.impl("clamp_max.Tensor", TORCH_FN((bounded<ops::clamp_max_Tensor, side::high, Tensor>)));
  r.impl("clamp_max_.Tensor", TORCH_FN((bounded_in<ops::clamp_max__Tensor, side::high, Tensor>)));
  r.impl("fmax", TORCH_FN((extreme<ops::fmax, true>)));
  r.impl("fmin", TORCH_FN((extreme<ops::fmin, false>)));
  r.impl("log10", TORCH_FN(log10));
  r.impl("log10_", TORCH_FN(log10_in));
  r.impl("ldexp.Tensor", TORCH_FN(ldexp_of));
  r.impl("ldexp_", TORCH_FN(ldexp_in));
  r.impl("combinations", TORCH_FN(combinations));
  r.impl("trace", TORCH_FN(trace_of));
  r.impl("linalg_det", TORCH_FN(det_of));
  for (const std::string name : {"_foreach_clamp_min", "_foreach_clamp_max"}) {
    for (const char* form :
         {".List", ".Scalar", ".ScalarList", "_.List", "_.Scalar", "_.ScalarList"}) {
      r.impl((name + form).c_str(),
             ::torch::CppFunction::makeFromBoxedFunction<&unfollowed_or_refuse>());
    }
  }
}

}  // namespace potl::libtorch::dispatch

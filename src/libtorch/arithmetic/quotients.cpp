// SPDX-License-Identifier: Apache-2.0
// Remainders, rounded quotients, maxima of two, evenly spaced values (numeric/ieee.hpp).
#include <potl/numeric/ieee.hpp>

#include <cmath>
#include <string>

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/div.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/floor_divide_ops.h>
#include <ATen/ops/fmax_ops.h>
#include <ATen/ops/fmin_ops.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/remainder_ops.h>

#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using keys_t = c10::DispatchKeySet;
using numeric::ieee_binary;
using optional_text = std::optional<c10::string_view>;

Tensor binary_to(const char* name, ieee_binary function, const Tensor& x, const Tensor& y,
                 const Tensor* in_place) {
  return elements(name, {x, y}, in_place, [&](const auto& in, auto out) {
    numeric::apply(function, in[0], in[1], out, executor());
  });
}

/// Integers by torch's kernel `Stock`, numbers by potl's.
template <class Stock, ieee_binary Function>
Tensor binary_of(keys_t keys, const Tensor& x, const Tensor& y) {
  if (all_integral({x, y})) return Stock::redispatch(keys & below, x, y);
  return binary_to(Stock::name, Function, x, y, nullptr);
}
template <class Stock, ieee_binary Function>
Tensor& binary_out(keys_t keys, const Tensor& x, const Tensor& y, Tensor& out) {
  return write_out(binary_of<Stock, Function>(keys, x, y), out);
}
template <class Stock, ieee_binary Function>
Tensor& binary_in(keys_t keys, Tensor& x, const Tensor& y) {
  if (all_integral({x, y})) return Stock::redispatch(keys & below, x, y);
  binary_to(Stock::name, Function, x, y, &x);
  return x;
}
Tensor scalar_remainder(keys_t keys, const Scalar& x, const Tensor& y) {
  return binary_of<at::_ops::remainder_Tensor, ieee_binary::remainder>(
      keys, at::native::wrapped_scalar_tensor(x), y);
}

ieee_binary rounding_of(c10::string_view mode) {
  TORCH_CHECK(mode == "floor" || mode == "trunc", "div expected rounding_mode to be one of None, ",
              "'trunc', or 'floor' but found '", mode, "'");
  return mode == "floor" ? ieee_binary::floor_divide : ieee_binary::trunc_divide;
}
Tensor div_mode(keys_t keys, const Tensor& x, const Tensor& y, optional_text mode) {
  if (!mode) return at::div(x, y);
  if (all_integral({x, y})) return at::_ops::div_Tensor_mode::redispatch(keys & below, x, y, mode);
  return binary_to("div", rounding_of(*mode), x, y, nullptr);
}
Tensor& div_mode_out(keys_t keys, const Tensor& x, const Tensor& y, optional_text mode,
                     Tensor& out) {
  return write_out(div_mode(keys, x, y, mode), out);
}
Tensor& div_mode_in(keys_t keys, Tensor& x, const Tensor& y, optional_text mode) {
  if (!mode) return x.div_(y);
  if (all_integral({x, y})) return at::_ops::div__Tensor_mode::redispatch(keys & below, x, y, mode);
  binary_to("div_", rounding_of(*mode), x, y, &x);
  return x;
}

Tensor clamp_to(const Tensor& x, const std::optional<Tensor>& low,
                const std::optional<Tensor>& high) {
  const bool has_low = low.has_value() && low->defined();
  const bool has_high = high.has_value() && high->defined();
  TORCH_CHECK(has_low || has_high, "torch.clamp: At least one of 'min' or 'max' must not be None");
  const Tensor above = has_low ? x.maximum(*low) : x;
  return has_high ? above.minimum(*high) : above;
}
Tensor& clamp_in(Tensor& x, const std::optional<Tensor>& low, const std::optional<Tensor>& high) {
  return x.copy_(clamp_to(x, low, high));
}
Tensor& clamp_out(const Tensor& x, const std::optional<Tensor>& low,
                  const std::optional<Tensor>& high, Tensor& out) {
  return write_out(clamp_to(x, low, high), out);
}
Tensor clamp_min(const Tensor& x, const Tensor& low) { return x.maximum(low); }
Tensor& clamp_min_in(Tensor& x, const Tensor& low) { return x.copy_(x.maximum(low)); }
Tensor clamp_max(const Tensor& x, const Tensor& high) { return x.minimum(high); }
Tensor& clamp_max_in(Tensor& x, const Tensor& high) { return x.copy_(x.minimum(high)); }

/// Calls fill(span) for row-major memory of the type that `out` computes in.
template <class Fill>
Tensor& filled(const char* name, Tensor& out, const Fill& fill) {
  const c10::ScalarType wide = compute_type(name, out.scalar_type());
  const bool direct = out.is_contiguous() && out.scalar_type() == wide;
  const Tensor values = direct ? out : make(out.sizes(), wide);
  if (wide == c10::ScalarType::Double) {
    fill(mutable_values<double>(values));
  } else {
    fill(mutable_values<float>(values));
  }
  return direct ? out : out.copy_(values);
}

Tensor& arange_out(keys_t keys, const Scalar& start, const Scalar& end, const Scalar& step,
                   Tensor& out) {
  if (is_integral(out)) {
    return at::_ops::arange_start_out::redispatch(keys & below, start, end, step, out);
  }
  const double first = start.toDouble();
  const double distance = step.toDouble();
  TORCH_CHECK(distance != 0, "step must be nonzero");
  const double count = std::ceil((end.toDouble() - first) / distance);
  TORCH_CHECK(std::isfinite(count), "unsupported range: ", first, " -> ", end.toDouble());
  TORCH_CHECK(count >= 0, "upper bound and lower bound inconsistent with step sign");
  const auto size = static_cast<std::int64_t>(count);
  if (out.numel() != size) out.resize_({size});
  return filled("arange", out,
                [&](auto values) { numeric::fill_steps(first, distance, values, executor()); });
}

Tensor& linspace_out(const Scalar& start, const Scalar& end, std::int64_t steps, Tensor& out) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  if (out.numel() != steps) out.resize_({steps});
  return filled("linspace", out, [&](auto values) {
    numeric::fill_line(start.toDouble(), end.toDouble(), values, executor());
  });
}

}  // namespace

void register_quotients(registrar& r) {
  namespace ops = at::_ops;
  const char* rest = "exact; of integers torch's kernel";
  constexpr auto modulo = ieee_binary::fmod;
  r.kernel("fmod.Tensor", TORCH_FN((binary_of<ops::fmod_Tensor, modulo>)), rest);
  r.kernel("fmod_.Tensor", TORCH_FN((binary_in<ops::fmod__Tensor, modulo>)), rest);
  r.kernel("fmod.Tensor_out", TORCH_FN((binary_out<ops::fmod_Tensor, modulo>)), rest);
  constexpr auto remainder = ieee_binary::remainder;
  r.kernel("remainder.Tensor", TORCH_FN((binary_of<ops::remainder_Tensor, remainder>)), rest);
  r.kernel("remainder_.Tensor", TORCH_FN((binary_in<ops::remainder__Tensor, remainder>)), rest);
  r.kernel("remainder.Tensor_out", TORCH_FN((binary_out<ops::remainder_Tensor, remainder>)), rest);
  r.kernel("remainder.Scalar_Tensor", TORCH_FN(scalar_remainder), rest);
  constexpr auto whole = ieee_binary::floor_divide;
  r.kernel("floor_divide", TORCH_FN((binary_of<ops::floor_divide, whole>)), rest);
  r.kernel("floor_divide_.Tensor", TORCH_FN((binary_in<ops::floor_divide__Tensor, whole>)), rest);
  r.kernel("floor_divide.out", TORCH_FN((binary_out<ops::floor_divide, whole>)), rest);
  r.kernel("div.Tensor_mode", TORCH_FN(div_mode), rest);
  r.kernel("div_.Tensor_mode", TORCH_FN(div_mode_in), rest);
  r.kernel("div.out_mode", TORCH_FN(div_mode_out), rest);
  const char* larger = "a selection; +0 is larger than -0";
  r.kernel("maximum", TORCH_FN((binary_of<ops::maximum, ieee_binary::maximum>)), larger);
  r.kernel("maximum.out", TORCH_FN((binary_out<ops::maximum, ieee_binary::maximum>)), larger);
  r.kernel("minimum", TORCH_FN((binary_of<ops::minimum, ieee_binary::minimum>)), larger);
  r.kernel("minimum.out", TORCH_FN((binary_out<ops::minimum, ieee_binary::minimum>)), larger);
  r.kernel("fmax", TORCH_FN((binary_of<ops::fmax, ieee_binary::fmax>)), larger);
  r.kernel("fmax.out", TORCH_FN((binary_out<ops::fmax, ieee_binary::fmax>)), larger);
  r.kernel("fmin", TORCH_FN((binary_of<ops::fmin, ieee_binary::fmin>)), larger);
  r.kernel("fmin.out", TORCH_FN((binary_out<ops::fmin, ieee_binary::fmin>)), larger);
  r.kernel("clamp.Tensor", TORCH_FN(clamp_to), "minimum and maximum");
  r.kernel("clamp_.Tensor", TORCH_FN(clamp_in), "minimum and maximum");
  r.kernel("clamp.Tensor_out", TORCH_FN(clamp_out), "minimum and maximum");
  r.kernel("clamp_min.Tensor", TORCH_FN(clamp_min), "minimum and maximum");
  r.kernel("clamp_min_.Tensor", TORCH_FN(clamp_min_in), "minimum and maximum");
  r.kernel("clamp_max.Tensor", TORCH_FN(clamp_max), "minimum and maximum");
  r.kernel("clamp_max_.Tensor", TORCH_FN(clamp_max_in), "minimum and maximum");
  r.derived("clamp_min.Tensor", {"clamp_min.Tensor_out"});
  r.derived("clamp_max.Tensor", {"clamp_max.Tensor_out"});
  r.kernel("arange.start_out", TORCH_FN(arange_out), "start + i step in double, rounded once");
  r.kernel("linspace.out", TORCH_FN(linspace_out), "from both ends in double, rounded once");
  r.refused({"range", "range.step", "range.out", "logspace", "logspace.out"},
            "use torch.arange or torch.linspace");
  r.refused({"round.decimals", "round_.decimals", "round.decimals_out"},
            "multiply, round() and divide");
}

}  // namespace potl::libtorch::dispatch

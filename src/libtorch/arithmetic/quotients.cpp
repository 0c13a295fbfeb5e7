// SPDX-License-Identifier: Apache-2.0
// Remainders, rounded quotients, maxima of two, choices, evenly spaced values
// (numeric/detail/ieee.hpp).
#include <potl/numeric/detail/ieee.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/div.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor_divide_ops.h>
#include <ATen/ops/fmax_ops.h>
#include <ATen/ops/fmin_ops.h>
#include <ATen/ops/fmod_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/where.h>
#include <ATen/ops/where_ops.h>

#include "choices.hpp"
#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using numeric::ieee_binary;
using optional_text = std::optional<c10::string_view>;

Tensor binary_to(destination to, const char* name, ieee_binary function, const Tensor& x,
                 const Tensor& y) {
  // A device has them in the same order.
  const auto there = static_cast<cuda::combination>(static_cast<int>(cuda::combination::fmod) +
                                                    static_cast<int>(function));
  return elements(
      name, {x, y}, to,
      [&](const auto& in, auto out) { numeric::apply(function, in[0], in[1], out, executor()); },
      combined_there{there});
}

template <class Stock, ieee_binary Function>
Tensor ieee_of(destination to, const Tensor& x, const Tensor& y) {
  return binary_to(to, Stock::name, Function, x, y);
}
template <class Stock, ieee_binary Function>
constexpr auto exact_of = but_integers<Stock, ieee_of<Stock, Function>>;

Tensor scalar_remainder(keys_t keys, const Scalar& x, const Tensor& y) {
  constexpr auto remainder = exact_of<at::_ops::remainder_Tensor, ieee_binary::remainder>;
  return remainder(nullptr, keys, at::native::wrapped_scalar_tensor(x), y);
}

ieee_binary rounding_of(c10::string_view mode) {
  TORCH_CHECK(mode == "floor" || mode == "trunc", "div expected rounding_mode to be one of None, ",
              "'trunc', or 'floor' but found '", mode, "'");
  return mode == "floor" ? ieee_binary::floor_divide : ieee_binary::trunc_divide;
}
Tensor div_mode(destination to, keys_t keys, const Tensor& x, const Tensor& y, optional_text mode) {
  if (!mode) return to == nullptr ? at::div(x, y) : to->div_(y);
  if (are_integers(x, y)) return at::_ops::div_Tensor_mode::redispatch(keys & below, x, y, mode);
  return binary_to(to, "div", rounding_of(*mode), x, y);
}

Tensor clamp(const Tensor& x, const std::optional<Tensor>& low, const std::optional<Tensor>& high) {
  const bool has_low = low.has_value() && low->defined();
  const bool has_high = high.has_value() && high->defined();
  TORCH_CHECK(has_low || has_high, "torch.clamp: At least one of 'min' or 'max' must not be None");
  const Tensor above = has_low ? x.maximum(*low) : x;
  return has_high ? above.minimum(*high) : above;
}
Tensor clamp_min(const Tensor& x, const Tensor& low) { return x.maximum(low); }
Tensor clamp_max(const Tensor& x, const Tensor& high) { return x.minimum(high); }

template <class Word>
void choose(const Tensor& condition, const Tensor& x, const Tensor& y, const Tensor& out) {
  const auto words = [](const Tensor& of) {
    return std::span<const Word>(static_cast<const Word*>(of.const_data_ptr()),
                                 static_cast<std::size_t>(of.numel()));
  };
  const std::span<Word> to(static_cast<Word*>(out.mutable_data_ptr()),
                           static_cast<std::size_t>(out.numel()));
  numeric::choose({static_cast<const std::uint8_t*>(condition.const_data_ptr()), to.size()},
                  words(x), words(y), to, executor());
}

/// torch's kernel branches at each element. This one has the same bits, and takes what lies in one
/// order in memory, or is a number for all.
Tensor where(keys_t keys, const Tensor& condition, const Tensor& x, const Tensor& y) {
  const auto stays = [&](const Tensor& of) {
    return of.device().is_cpu() && of.layout() == c10::kStrided && !of.is_conj() && !of.is_neg();
  };
  const auto fits = [&](const Tensor& of) {
    return of.dim() == 0 ||
           (of.sizes() == condition.sizes() && of.strides() == condition.strides());
  };
  const std::array both{x, y};
  const c10::ScalarType type = at::native::result_type(both);
  const std::size_t width = c10::elementSize(type);
  if (condition.scalar_type() != at::kBool || !condition.is_non_overlapping_and_dense() ||
      !stays(condition) || !stays(x) || !stays(y) || !fits(x) || !fits(y) ||
      (width != 4 && width != 8)) {
    return at::_ops::where_self::redispatch(keys & below, condition, x, y);
  }
  const Tensor out = at::empty_like(condition, at::TensorOptions(type));
  (width == 4 ? choose<std::uint32_t> : choose<std::uint64_t>)(condition, x.to(type), y.to(type),
                                                               out);
  return out;
}

/// Calls fill(span) for row-major memory of the type that `out` computes in.
template <class Fill>
Tensor& filled(const char* name, Tensor& out, const Fill& fill) {
  const c10::ScalarType wide = compute_type(name, out.scalar_type());
  const bool direct = out.device().is_cpu() && out.is_contiguous() && out.scalar_type() == wide;
  const Tensor values = direct ? out : make(out.sizes(), wide);
  with_real(wide, [&](auto zero) { fill(mutable_values<decltype(zero)>(values)); });
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

Tensor if_below(const Tensor& x, double bound, const Tensor& yes, const Tensor& no,
                const Tensor& out) {
  if (is_on_device(x) || !x.is_cpu()) return out.copy_(at::where(x < bound, yes, no));
  return elements("where", {x, yes, no}, &out, [&](const auto& in, auto to) {
    numeric::choose_below(in[0], bound, in[1], in[2], to, executor());
  });
}

void register_quotients(registrar& r) {
  namespace ops = at::_ops;
  const char* rest = "exact; of integers torch's kernel";
  r.kernel<exact_of<ops::fmod_Tensor, ieee_binary::fmod>>("fmod.Tensor", rest,
                                                          {"fmod_.Tensor", "fmod.Tensor_out"});
  r.kernel<exact_of<ops::remainder_Tensor, ieee_binary::remainder>>(
      "remainder.Tensor", rest, {"remainder_.Tensor", "remainder.Tensor_out"});
  r.kernel<scalar_remainder>("remainder.Scalar_Tensor", rest);
  r.kernel<exact_of<ops::floor_divide, ieee_binary::floor_divide>>(
      "floor_divide", rest, {"floor_divide_.Tensor", "floor_divide.out"});
  r.kernel<div_mode>("div.Tensor_mode", rest, {"div_.Tensor_mode", "div.out_mode"});
  const char* larger = "a selection; +0 is larger than -0";
  r.kernel<exact_of<ops::maximum, ieee_binary::maximum>>("maximum", larger, {"maximum.out"});
  r.kernel<exact_of<ops::minimum, ieee_binary::minimum>>("minimum", larger, {"minimum.out"});
  r.kernel<exact_of<ops::fmax, ieee_binary::fmax>>("fmax", larger, {"fmax.out"});
  r.kernel<exact_of<ops::fmin, ieee_binary::fmin>>("fmin", larger, {"fmin.out"});
  r.kernel<where>("where.self", "a selection of bits", {"where.self_out"});
  const char* both = "minimum and maximum";
  r.kernel<clamp>("clamp.Tensor", both, {"clamp_.Tensor", "clamp.Tensor_out"});
  r.kernel<clamp_min>("clamp_min.Tensor", both, {"clamp_min_.Tensor", "clamp_min.Tensor_out"});
  r.kernel<clamp_max>("clamp_max.Tensor", both, {"clamp_max_.Tensor", "clamp_max.Tensor_out"});
  r.kernel<arange_out>("arange.start_out", "start + i step in double, rounded once");
  r.kernel<linspace_out>("linspace.out", "from both ends in double, rounded once");
  r.refused({"range", "range.step", "range.out", "logspace", "logspace.out"},
            "use torch.arange or torch.linspace");
  r.refused({"round.decimals", "round_.decimals", "round.decimals_out"},
            "multiply, round() and divide");
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// add and sub with a factor, lerp, addcmul, addcdiv: numeric/combine.hpp has the formulas.
// Without a factor, sums are one IEEE operation: torch's own kernel.
#include <potl/numeric/combine.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>

#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;

// What is computed of either part of complex numbers alone.
bool are_complex(const Tensor& a, const Tensor& b) {
  return a.is_complex() && b.scalar_type() == a.scalar_type();
}
Tensor parts(const Tensor& x) { return at::view_as_real(x.resolve_conj()); }
Tensor whole(destination to, const Tensor& parts) {
  return to == nullptr ? at::view_as_complex(parts) : to->copy_(at::view_as_complex(parts));
}

Tensor scaled(destination to, const char* name, const Tensor& a, const Tensor& b, double alpha) {
  if (are_complex(a, b)) {
    return whole(to, scaled(nullptr, name, parts(a), parts(b), alpha));
  }
  return elements(
      name, {a, b}, to,
      [&](const auto& in, auto out) { numeric::add_scaled(in[0], in[1], alpha, out, executor()); },
      combined_there{cuda::combination::add_scaled, {alpha}});
}

bool is_plain(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return alpha.equal(1) || are_integers(a, b);
}

/// A number of the CPU beside a tensor of a device: there torch rounds it to the tensor's type as
/// the CPU does only if it is a tensor of the device.
Tensor beside(const Tensor& tensor, const Tensor& number) {
  const bool is_number = is_on_device(tensor) && tensor.device() != number.device() &&
                         number.dim() == 0 && !is_integral(tensor);
  return is_number ? number_there(number, tensor.options()) : number;
}

// A sum without a factor is torch's own in each of its forms: no step is without them.
Tensor add(keys_t keys, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_plain(a, b, alpha))
    return at::_ops::add_Tensor::redispatch(keys & below, beside(b, a), beside(a, b), alpha);
  return scaled(nullptr, "add", a, b, alpha.toDouble());
}
Tensor& add_in(keys_t keys, Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_plain(a, b, alpha))
    return at::_ops::add__Tensor::redispatch(keys & below, a, beside(a, b), alpha);
  scaled(&a, "add_", a, b, alpha.toDouble());
  return a;
}
Tensor& add_out(keys_t keys, const Tensor& a, const Tensor& b, const Scalar& alpha, Tensor& out) {
  if (is_plain(a, b, alpha)) {
    return at::_ops::add_out::redispatch(keys & below, beside(b, a), beside(a, b), alpha, out);
  }
  return write_out(scaled(nullptr, "add", a, b, alpha.toDouble()), out);
}

Tensor sub(keys_t keys, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_plain(a, b, alpha))
    return at::_ops::sub_Tensor::redispatch(keys & below, beside(b, a), beside(a, b), alpha);
  return scaled(nullptr, "sub", a, b, -alpha.toDouble());
}
Tensor& sub_in(keys_t keys, Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_plain(a, b, alpha))
    return at::_ops::sub__Tensor::redispatch(keys & below, a, beside(a, b), alpha);
  scaled(&a, "sub_", a, b, -alpha.toDouble());
  return a;
}
Tensor& sub_out(keys_t keys, const Tensor& a, const Tensor& b, const Scalar& alpha, Tensor& out) {
  if (is_plain(a, b, alpha)) {
    return at::_ops::sub_out::redispatch(keys & below, beside(b, a), beside(a, b), alpha, out);
  }
  return write_out(scaled(nullptr, "sub", a, b, -alpha.toDouble()), out);
}

Tensor lerp(destination to, const Tensor& a, const Tensor& b, const Tensor& weight) {
  return elements(
      "lerp", {a, b, weight}, to,
      [&](const auto& in, auto out) { numeric::lerp(in[0], in[1], in[2], out, executor()); },
      combined_there{cuda::combination::lerp});
}
Tensor lerp_scalar(destination to, const Tensor& a, const Tensor& b, const Scalar& weight) {
  if (are_complex(a, b)) return whole(to, lerp_scalar(nullptr, parts(a), parts(b), weight));
  return elements(
      "lerp", {a, b}, to,
      [&](const auto& in, auto out) {
        using real = typename decltype(out)::element_type;
        const real one = static_cast<real>(weight.toDouble());
        numeric::lerp(in[0], in[1], std::span<const real>(&one, 1), out, executor());
      },
      combined_there{cuda::combination::lerp_by_number, {weight.toDouble()}});
}

Tensor addcmul(destination to, const Tensor& a, const Tensor& b, const Tensor& c,
               const Scalar& value) {
  return elements(
      "addcmul", {a, b, c}, to,
      [&](const auto& in, auto out) {
        numeric::addcmul(in[0], in[1], in[2], value.toDouble(), out, executor());
      },
      combined_there{cuda::combination::addcmul, {value.toDouble()}});
}
Tensor addcdiv(destination to, const Tensor& a, const Tensor& b, const Tensor& c,
               const Scalar& value) {
  return elements(
      "addcdiv", {a, b, c}, to,
      [&](const auto& in, auto out) {
        numeric::addcdiv(in[0], in[1], in[2], value.toDouble(), out, executor());
      },
      combined_there{cuda::combination::addcdiv, {value.toDouble()}});
}

}  // namespace

void register_sums(registrar& r) {
  const char* sum = "one IEEE operation; with alpha one fused multiply-add";
  r.kernel<add>("add.Tensor", sum);
  r.kernel<add_in>("add_.Tensor", sum);
  r.kernel<add_out>("add.out", sum);
  r.kernel<sub>("sub.Tensor", sum);
  r.kernel<sub_in>("sub_.Tensor", sum);
  r.kernel<sub_out>("sub.out", sum);
  r.composed_on_cpu({"rsub.Tensor"}, "sub");
  const char* line = "fma(w, b - a, a), or fma(w - 1, b - a, b) from w = 1/2";
  r.kernel<lerp>("lerp.Tensor", line, {"lerp_.Tensor", "lerp.Tensor_out"});
  r.kernel<lerp_scalar>("lerp.Scalar", line, {"lerp_.Scalar", "lerp.Scalar_out"});
  r.kernel<but_integers<at::_ops::addcmul, addcmul>>("addcmul", "fma(value b, c, a)",
                                                     {"addcmul_", "addcmul.out"});
  r.kernel<addcdiv>("addcdiv", "fma(value, b / c, a)", {"addcdiv_", "addcdiv.out"});
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// add and sub with a factor, lerp, addcmul, addcdiv: numeric/combine.hpp has the formulas. Without
// a factor, sums are one IEEE operation: torch's own kernel.
#include <potl/numeric/combine.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/sub_ops.h>

#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using keys_t = c10::DispatchKeySet;

Tensor scaled(const char* name, const Tensor& a, const Tensor& b, double alpha,
              const Tensor* in_place) {
  return elements(name, {a, b}, in_place, [&](const auto& in, auto out) {
    numeric::add_scaled(in[0], in[1], alpha, out, executor());
  });
}

bool is_plain(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  return alpha.equal(1) || all_integral({a, b});
}

Tensor add(keys_t keys, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_plain(a, b, alpha)) return at::_ops::add_Tensor::redispatch(keys & below, a, b, alpha);
  return scaled("add", a, b, alpha.toDouble(), nullptr);
}
Tensor& add_in(keys_t keys, Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_plain(a, b, alpha)) return at::_ops::add__Tensor::redispatch(keys & below, a, b, alpha);
  scaled("add_", a, b, alpha.toDouble(), &a);
  return a;
}
Tensor& add_out(keys_t keys, const Tensor& a, const Tensor& b, const Scalar& alpha, Tensor& out) {
  if (is_plain(a, b, alpha)) {
    return at::_ops::add_out::redispatch(keys & below, a, b, alpha, out);
  }
  return write_out(scaled("add", a, b, alpha.toDouble(), nullptr), out);
}

Tensor sub(keys_t keys, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_plain(a, b, alpha)) return at::_ops::sub_Tensor::redispatch(keys & below, a, b, alpha);
  return scaled("sub", a, b, -alpha.toDouble(), nullptr);
}
Tensor& sub_in(keys_t keys, Tensor& a, const Tensor& b, const Scalar& alpha) {
  if (is_plain(a, b, alpha)) return at::_ops::sub__Tensor::redispatch(keys & below, a, b, alpha);
  scaled("sub_", a, b, -alpha.toDouble(), &a);
  return a;
}
Tensor& sub_out(keys_t keys, const Tensor& a, const Tensor& b, const Scalar& alpha, Tensor& out) {
  if (is_plain(a, b, alpha)) {
    return at::_ops::sub_out::redispatch(keys & below, a, b, alpha, out);
  }
  return write_out(scaled("sub", a, b, -alpha.toDouble(), nullptr), out);
}

Tensor lerp_to(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor* in_place) {
  return elements("lerp", {a, b, weight}, in_place, [&](const auto& in, auto out) {
    numeric::lerp(in[0], in[1], in[2], out, executor());
  });
}
Tensor lerp_scalar_to(const Tensor& a, const Tensor& b, const Scalar& weight,
                      const Tensor* in_place) {
  return elements("lerp", {a, b}, in_place, [&](const auto& in, auto out) {
    using real = typename decltype(out)::element_type;
    const real one = static_cast<real>(weight.toDouble());
    numeric::lerp(in[0], in[1], std::span<const real>(&one, 1), out, executor());
  });
}

Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& w) { return lerp_to(a, b, w, nullptr); }
Tensor& lerp_in(Tensor& a, const Tensor& b, const Tensor& w) {
  lerp_to(a, b, w, &a);
  return a;
}
Tensor& lerp_out(const Tensor& a, const Tensor& b, const Tensor& w, Tensor& out) {
  return write_out(lerp(a, b, w), out);
}
Tensor lerp_scalar(const Tensor& a, const Tensor& b, const Scalar& w) {
  return lerp_scalar_to(a, b, w, nullptr);
}
Tensor& lerp_scalar_in(Tensor& a, const Tensor& b, const Scalar& w) {
  lerp_scalar_to(a, b, w, &a);
  return a;
}
Tensor& lerp_scalar_out(const Tensor& a, const Tensor& b, const Scalar& w, Tensor& out) {
  return write_out(lerp_scalar(a, b, w), out);
}

Tensor addcmul_to(const Tensor& a, const Tensor& b, const Tensor& c, const Scalar& value,
                  const Tensor* in_place) {
  return elements("addcmul", {a, b, c}, in_place, [&](const auto& in, auto out) {
    numeric::addcmul(in[0], in[1], in[2], value.toDouble(), out, executor());
  });
}
Tensor addcmul(keys_t keys, const Tensor& a, const Tensor& b, const Tensor& c,
               const Scalar& value) {
  if (all_integral({a, b, c})) {
    return at::_ops::addcmul::redispatch(keys & below, a, b, c, value);
  }
  return addcmul_to(a, b, c, value, nullptr);
}
Tensor& addcmul_in(keys_t keys, Tensor& a, const Tensor& b, const Tensor& c, const Scalar& value) {
  if (all_integral({a, b, c})) {
    return at::_ops::addcmul_::redispatch(keys & below, a, b, c, value);
  }
  addcmul_to(a, b, c, value, &a);
  return a;
}
Tensor& addcmul_out(keys_t keys, const Tensor& a, const Tensor& b, const Tensor& c,
                    const Scalar& value, Tensor& out) {
  return write_out(addcmul(keys, a, b, c, value), out);
}

Tensor addcdiv_to(const Tensor& a, const Tensor& b, const Tensor& c, const Scalar& value,
                  const Tensor* in_place) {
  return elements("addcdiv", {a, b, c}, in_place, [&](const auto& in, auto out) {
    numeric::addcdiv(in[0], in[1], in[2], value.toDouble(), out, executor());
  });
}
Tensor addcdiv(const Tensor& a, const Tensor& b, const Tensor& c, const Scalar& value) {
  return addcdiv_to(a, b, c, value, nullptr);
}
Tensor& addcdiv_in(Tensor& a, const Tensor& b, const Tensor& c, const Scalar& value) {
  addcdiv_to(a, b, c, value, &a);
  return a;
}
Tensor& addcdiv_out(const Tensor& a, const Tensor& b, const Tensor& c, const Scalar& value,
                    Tensor& out) {
  return write_out(addcdiv(a, b, c, value), out);
}

}  // namespace

void register_sums(registrar& r) {
  const char* sum = "one IEEE operation; with alpha one fused multiply-add";
  r.kernel("add.Tensor", TORCH_FN(add), sum);
  r.kernel("add_.Tensor", TORCH_FN(add_in), sum);
  r.kernel("add.out", TORCH_FN(add_out), sum);
  r.kernel("sub.Tensor", TORCH_FN(sub), sum);
  r.kernel("sub_.Tensor", TORCH_FN(sub_in), sum);
  r.kernel("sub.out", TORCH_FN(sub_out), sum);
  r.composed_on_cpu({"rsub.Tensor"}, "sub");
  const char* line = "fma(w, b - a, a), or fma(w - 1, b - a, b) from w = 1/2";
  r.kernel("lerp.Tensor", TORCH_FN(lerp), line);
  r.kernel("lerp_.Tensor", TORCH_FN(lerp_in), line);
  r.kernel("lerp.Tensor_out", TORCH_FN(lerp_out), line);
  r.kernel("lerp.Scalar", TORCH_FN(lerp_scalar), line);
  r.kernel("lerp_.Scalar", TORCH_FN(lerp_scalar_in), line);
  r.kernel("lerp.Scalar_out", TORCH_FN(lerp_scalar_out), line);
  r.kernel("addcmul", TORCH_FN(addcmul), "fma(value b, c, a)");
  r.kernel("addcmul_", TORCH_FN(addcmul_in), "fma(value b, c, a)");
  r.kernel("addcmul.out", TORCH_FN(addcmul_out), "fma(value b, c, a)");
  r.kernel("addcdiv", TORCH_FN(addcdiv), "fma(value, b / c, a)");
  r.kernel("addcdiv_", TORCH_FN(addcdiv_in), "fma(value, b / c, a)");
  r.kernel("addcdiv.out", TORCH_FN(addcdiv_out), "fma(value, b / c, a)");
}

}  // namespace potl::libtorch::dispatch

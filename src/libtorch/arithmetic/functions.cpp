// SPDX-License-Identifier: Apache-2.0
// Functions of single elements and their gradients (numeric/elementwise.hpp), square roots
// (numeric/detail/ieee.hpp), powers.
#include <potl/numeric/detail/ieee.hpp>
#include <potl/numeric/elementwise.hpp>

#include <array>
#include <string>

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/copysign.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/real.h>
#include <ATen/ops/where.h>

#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using numeric::binary;
using numeric::gradient;
using numeric::unary;

Tensor unary_to(destination to, unary function, const Tensor& x) {
  const auto body = [&](const auto& in, auto out) {
    numeric::apply(function, in[0], out, executor());
  };
  if (function == unary::erfinv) return elements("erfinv", {x}, to, body);
  return elements(to_string(function), {x}, to, body,
                  [&](const device_call& there, const auto& in, float* out, std::size_t count) {
                    there->apply(function, in[0].data, out, count, there.queue());
                  });
}

template <unary Function>
Tensor function_of(destination to, const Tensor& x) {
  return unary_to(to, Function, x);
}

Tensor exp_to(destination to, const Tensor& x) {
  if (!x.is_complex()) return unary_to(to, unary::exp, x);
  return at::polar(at::real(x).exp(), at::imag(x));
}

Tensor log_to(destination to, const Tensor& x) {
  if (!x.is_complex()) return unary_to(to, unary::log, x);
  const Tensor wide = x.to(at::kComplexDouble);
  return at::complex(wide.abs().log(), wide.angle()).to(x.scalar_type());
}

/// t = sqrt((|z| + |a|) / 2) and b / 2t are the parts of the root of a + bi, exchanged below a = 0.
Tensor complex_root(const Tensor& x) {
  const Tensor wide = x.to(at::kComplexDouble), a = at::real(wide), b = at::imag(wide);
  const Tensor t = (wide.abs() / 2 + a.abs() / 2).sqrt();
  const Tensor other = at::where((t == 0) | b.isinf(), b, b / (t * 2));
  const Tensor is_left = a < 0;
  return at::complex(at::where(is_left, other.abs(), t),
                     at::where(is_left, at::copysign(t, b), other))
      .to(x.scalar_type());
}

template <unary Function>
void register_function(registrar& r, const std::string& name) {
  r.kernel<function_of<Function>>(name, "potl's polynomial", {name + "_", name + ".out"});
}

Tensor root(destination to, const Tensor& x) {
  if (x.is_complex()) return complex_root(x);
  return elements(
      "sqrt", {x}, to,
      [](const auto& in, auto out) { numeric::square_root(in[0], out, executor()); },
      combined_there{cuda::combination::square_root});
}

unary gelu_of(std::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh",
              "approximate argument must be either none or tanh.");
  return approximate == "tanh" ? unary::gelu_tanh : unary::gelu;
}
Tensor gelu(destination to, const Tensor& x, c10::string_view approximate) {
  return unary_to(to, gelu_of(approximate), x);
}

Tensor gradient_of(gradient function, const Tensor& slope, const Tensor& given) {
  const auto [dy, operand] = broadcast(slope, given);
  return elements(
      to_string(function), {dy, operand}, nullptr,
      [&](const auto& in, auto out) { numeric::apply(function, in[0], in[1], out, executor()); },
      [&](const device_call& there, const auto& in, float* out, std::size_t count) {
        there->apply(function, in[0].data, in[1].data, out, count, there.queue());
      });
}

template <gradient Function>
Tensor gradient_from(const Tensor& dy, const Tensor& operand) {
  return gradient_of(Function, dy, operand);
}
constexpr const char* derivative = "the derivative by the same operations";

template <gradient Function>
void register_gradient(registrar& r, const std::string& name) {
  r.kernel<gradient_from<Function>>(name, derivative, {name + ".grad_input"});
}

Tensor gelu_gradient(const Tensor& dy, const Tensor& x, c10::string_view approximate) {
  const bool tanh = gelu_of(approximate) == unary::gelu_tanh;
  return gradient_of(tanh ? gradient::gelu_tanh : gradient::gelu, dy, x);
}
cuda::combination combination_of(binary function) {
  switch (function) {
    case binary::pow: return cuda::combination::power;
    case binary::logaddexp: return cuda::combination::logaddexp;
    case binary::xlogy: return cuda::combination::xlogy;
  }
  TORCH_INTERNAL_ASSERT(false);
}

Tensor binary_to(destination to, binary function, const Tensor& x, const Tensor& y) {
  return elements(
      to_string(function), {x, y}, to,
      [&](const auto& in, auto out) { numeric::apply(function, in[0], in[1], out, executor()); },
      combined_there{combination_of(function)});
}

/// exp(y log x) in double, rounded once; 1 where y is 0, and 0 where x is and the real part of y is
/// above 0.
Tensor complex_power(const Tensor& x, const Tensor& y) {
  const std::array both{x, y};
  const Tensor power = y.to(y.is_complex() ? at::kComplexDouble : at::kDouble);
  const Tensor out = (x.to(at::kComplexDouble).log() * power).exp();
  const Tensor is_zero = (x == 0) & (at::real(power) > 0);
  return out.masked_fill(is_zero, 0).masked_fill(power == 0, 1).to(at::native::result_type(both));
}
Tensor power(destination to, const Tensor& x, const Tensor& y) {
  if (x.is_complex() || y.is_complex()) return complex_power(x, y);
  return binary_to(to, binary::pow, x, y);
}

template <binary Function>
Tensor binary_of(destination to, const Tensor& x, const Tensor& y) {
  return binary_to(to, Function, x, y);
}

Tensor xlogy_scalar(const Tensor& x, const Scalar& y) {
  return binary_to(nullptr, binary::xlogy, x, at::native::wrapped_scalar_tensor(y));
}
Tensor scalar_xlogy(const Scalar& x, const Tensor& y) {
  return binary_to(nullptr, binary::xlogy, at::native::wrapped_scalar_tensor(x), y);
}

Tensor pow_scalar(destination to, keys_t keys, const Tensor& x, const Scalar& y) {
  if (is_integral(x) && y.isIntegral(/*includeBool=*/true)) {
    return at::_ops::pow_Tensor_Scalar::redispatch(keys & below, x, y);
  }
  if (x.is_complex() && y.equal(1)) return x.clone();
  if (x.is_complex() && y.equal(2)) return x * x;
  return power(to, x, at::native::wrapped_scalar_tensor(y));
}
Tensor scalar_pow(keys_t keys, const Scalar& x, const Tensor& y) {
  if (x.isIntegral(/*includeBool=*/true) && is_integral(y)) {
    return at::_ops::pow_Scalar::redispatch(keys & below, x, y);
  }
  return power(nullptr, at::native::wrapped_scalar_tensor(x), y);
}

}  // namespace

void register_functions(registrar& r) {
  r.kernel<exp_to>("exp", "potl's polynomial", {"exp_", "exp.out"});
  register_function<unary::exp2>(r, "exp2");
  register_function<unary::expm1>(r, "expm1");
  r.kernel<log_to>("log", "potl's polynomial", {"log_", "log.out"});
  register_function<unary::log2>(r, "log2");
  register_function<unary::log10>(r, "log10");
  register_function<unary::log1p>(r, "log1p");
  register_function<unary::rsqrt>(r, "rsqrt");
  register_function<unary::sin>(r, "sin");
  register_function<unary::cos>(r, "cos");
  register_function<unary::tan>(r, "tan");
  register_function<unary::sinh>(r, "sinh");
  register_function<unary::cosh>(r, "cosh");
  register_function<unary::tanh>(r, "tanh");
  register_function<unary::sigmoid>(r, "sigmoid");
  register_function<unary::erf>(r, "erf");
  register_function<unary::erfc>(r, "erfc");
  register_function<unary::erfinv>(r, "erfinv");
  register_function<unary::silu>(r, "silu");
  register_function<unary::mish>(r, "mish");
  r.kernel<root>("sqrt", "correctly rounded; complex numbers: in double, rounded once",
                 {"sqrt_", "sqrt.out"});
  r.kernel<gelu>("gelu", "potl's polynomial", {"gelu_", "gelu.out"});
  register_gradient<gradient::tanh>(r, "tanh_backward");
  register_gradient<gradient::sigmoid>(r, "sigmoid_backward");
  register_gradient<gradient::silu>(r, "silu_backward");
  r.kernel<gradient_from<gradient::mish>>("mish_backward", derivative);
  r.kernel<gelu_gradient>("gelu_backward", derivative, {"gelu_backward.grad_input"});
  const char* note = "potl's polynomial";
  r.kernel<binary_of<binary::logaddexp>>("logaddexp", note, {"logaddexp.out"});
  r.kernel<binary_of<binary::xlogy>>("xlogy.Tensor", note, {"xlogy.OutTensor", "xlogy_.Tensor"});
  r.kernel<xlogy_scalar>("xlogy.Scalar_Other", note);
  r.kernel<scalar_xlogy>("xlogy.Scalar_Self", note);
  const char* powers = "potl's polynomial; x^2 is x x; complex numbers: exp(y log x)";
  r.kernel<but_integers<at::_ops::pow_Tensor_Tensor, power>>(
      "pow.Tensor_Tensor", powers, {"pow.Tensor_Tensor_out", "pow_.Tensor"});
  r.kernel<pow_scalar>("pow.Tensor_Scalar", powers, {"pow.Tensor_Scalar_out", "pow_.Scalar"});
  r.kernel<scalar_pow>("pow.Scalar", powers, {"pow.Scalar_out"});
  r.composed({"ldexp.Tensor", "ldexp.out", "ldexp_"}, "mul and pow");
}

}  // namespace potl::libtorch::dispatch

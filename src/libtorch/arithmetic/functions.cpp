// SPDX-License-Identifier: Apache-2.0
// Functions of single elements and their gradients (numeric/elementwise.hpp), square roots
// (numeric/ieee.hpp), powers.
#include <potl/numeric/elementwise.hpp>
#include <potl/numeric/ieee.hpp>

#include <string>

#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/pow_ops.h>

#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Scalar;
using at::Tensor;
using keys_t = c10::DispatchKeySet;
using numeric::binary;
using numeric::gradient;
using numeric::unary;

/// Whether elements can be taken as they lie in memory: so it is in most calls, and what `elements`
/// prepares for the others takes as long as some thousand elements.
bool is_flat(const Tensor& x) {
  const c10::ScalarType type = x.scalar_type();
  return (type == c10::ScalarType::Float || type == c10::ScalarType::Double) &&
         x.layout() == c10::kStrided && x.device().is_cpu() && x.is_non_overlapping_and_dense();
}
void apply_flat(unary function, const Tensor& x, const Tensor& out) {
  if (x.scalar_type() == c10::ScalarType::Double) {
    numeric::apply(function, values<double>(x), mutable_values<double>(out), executor());
  } else {
    numeric::apply(function, values<float>(x), mutable_values<float>(out), executor());
  }
}

/// `in_place` is x, or can_write_to(x, *in_place).
Tensor unary_to(unary function, const Tensor& x, const Tensor* in_place) {
  if (is_flat(x)) {
    const Tensor out = in_place == nullptr ? like(x) : *in_place;
    if (out.scalar_type() == x.scalar_type() && out.sizes() == x.sizes() &&
        out.strides() == x.strides()) {
      apply_flat(function, x, out);
      return out;
    }
  }
  return elements(to_string(function), {x}, in_place, [&](const auto& in, auto out) {
    numeric::apply(function, in[0], out, executor());
  });
}

Tensor& unary_into(unary function, const Tensor& x, Tensor& out) {
  at::assert_no_partial_overlap(out, x);
  if (can_write_to(x, out)) {
    unary_to(function, x, &out);
    return out;
  }
  return write_out(unary_to(function, x, nullptr), out);
}

template <unary Function>
Tensor function_of(const Tensor& x) {
  return unary_to(Function, x, nullptr);
}
template <unary Function>
Tensor& function_in(Tensor& x) {
  unary_to(Function, x, &x);
  return x;
}
template <unary Function>
Tensor& function_out(const Tensor& x, Tensor& out) {
  return unary_into(Function, x, out);
}

template <unary Function>
void register_function(registrar& r, const std::string& name) {
  r.kernel(name.c_str(), TORCH_FN(function_of<Function>), "potl's polynomial");
  r.kernel((name + "_").c_str(), TORCH_FN(function_in<Function>), "potl's polynomial");
  r.kernel((name + ".out").c_str(), TORCH_FN(function_out<Function>), "potl's polynomial");
}

Tensor sqrt_to(const Tensor& x, const Tensor* in_place) {
  return elements("sqrt", {x}, in_place,
                  [](const auto& in, auto out) { numeric::square_root(in[0], out, executor()); });
}
Tensor root(const Tensor& x) { return sqrt_to(x, nullptr); }
Tensor& sqrt_in(Tensor& x) {
  sqrt_to(x, &x);
  return x;
}
Tensor& sqrt_out(const Tensor& x, Tensor& out) { return write_out(root(x), out); }

unary gelu_of(std::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh",
              "approximate argument must be either none or tanh.");
  return approximate == "tanh" ? unary::gelu_tanh : unary::gelu;
}
Tensor gelu_new(const Tensor& x, c10::string_view approximate) {
  return unary_to(gelu_of(approximate), x, nullptr);
}
Tensor& gelu_in(Tensor& x, c10::string_view approximate) {
  unary_to(gelu_of(approximate), x, &x);
  return x;
}
Tensor& gelu_out(const Tensor& x, c10::string_view approximate, Tensor& out) {
  return unary_into(gelu_of(approximate), x, out);
}

Tensor gradient_of(gradient function, const Tensor& dy, const Tensor& operand) {
  return elements(to_string(function), {dy, operand}, nullptr, [&](const auto& in, auto out) {
    // A single gradient (of a sum) is given as one element.
    if (in[0].size() == out.size() && in[1].size() == out.size()) {
      numeric::apply(function, in[0], in[1], out, executor());
      return;
    }
    using real = typename decltype(out)::element_type;
    const auto spread = [&](std::span<const real> few) {
      return few.size() == out.size() ? std::vector<real>(few.begin(), few.end())
                                      : std::vector<real>(out.size(), few[0]);
    };
    const std::vector<real> left = spread(in[0]);
    const std::vector<real> right = spread(in[1]);
    numeric::apply(function, std::span<const real>(left), std::span<const real>(right), out,
                   executor());
  });
}

template <gradient Function>
Tensor gradient_from(const Tensor& dy, const Tensor& operand) {
  return gradient_of(Function, dy, operand);
}
template <gradient Function>
Tensor& gradient_out(const Tensor& dy, const Tensor& operand, Tensor& out) {
  return write_out(gradient_of(Function, dy, operand), out);
}

template <gradient Function>
void register_gradient(registrar& r, const std::string& name) {
  const char* note = "the derivative by the same operations";
  r.kernel(name.c_str(), TORCH_FN(gradient_from<Function>), note);
  r.kernel((name + ".grad_input").c_str(), TORCH_FN(gradient_out<Function>), note);
}

Tensor gelu_gradient(const Tensor& dy, const Tensor& x, c10::string_view approximate) {
  const bool tanh = gelu_of(approximate) == unary::gelu_tanh;
  return gradient_of(tanh ? gradient::gelu_tanh : gradient::gelu, dy, x);
}
Tensor& gelu_gradient_out(const Tensor& dy, const Tensor& x, c10::string_view approximate,
                          Tensor& out) {
  return write_out(gelu_gradient(dy, x, approximate), out);
}

Tensor binary_to(binary function, const Tensor& x, const Tensor& y, const Tensor* in_place) {
  return elements(to_string(function), {x, y}, in_place, [&](const auto& in, auto out) {
    numeric::apply(function, in[0], in[1], out, executor());
  });
}

template <binary Function>
Tensor binary_of(const Tensor& x, const Tensor& y) {
  return binary_to(Function, x, y, nullptr);
}
template <binary Function>
Tensor& binary_out(const Tensor& x, const Tensor& y, Tensor& out) {
  return write_out(binary_to(Function, x, y, nullptr), out);
}

Tensor xlogy_scalar(const Tensor& x, const Scalar& y) {
  return binary_to(binary::xlogy, x, at::native::wrapped_scalar_tensor(y), nullptr);
}
Tensor scalar_xlogy(const Scalar& x, const Tensor& y) {
  return binary_to(binary::xlogy, at::native::wrapped_scalar_tensor(x), y, nullptr);
}
Tensor& xlogy_in(Tensor& x, const Tensor& y) {
  binary_to(binary::xlogy, x, y, &x);
  return x;
}

Tensor pow(keys_t keys, const Tensor& x, const Tensor& y) {
  if (all_integral({x, y})) return at::_ops::pow_Tensor_Tensor::redispatch(keys & below, x, y);
  return binary_to(binary::pow, x, y, nullptr);
}
Tensor& pow_out(keys_t keys, const Tensor& x, const Tensor& y, Tensor& out) {
  return write_out(pow(keys, x, y), out);
}
Tensor& pow_in(keys_t keys, Tensor& x, const Tensor& y) {
  if (all_integral({x, y})) return at::_ops::pow__Tensor::redispatch(keys & below, x, y);
  binary_to(binary::pow, x, y, &x);
  return x;
}
Tensor pow_scalar(keys_t keys, const Tensor& x, const Scalar& y) {
  if (is_integral(x) && y.isIntegral(/*includeBool=*/true)) {
    return at::_ops::pow_Tensor_Scalar::redispatch(keys & below, x, y);
  }
  return binary_to(binary::pow, x, at::native::wrapped_scalar_tensor(y), nullptr);
}
Tensor& pow_scalar_out(keys_t keys, const Tensor& x, const Scalar& y, Tensor& out) {
  return write_out(pow_scalar(keys, x, y), out);
}
Tensor& pow_scalar_in(keys_t keys, Tensor& x, const Scalar& y) {
  if (is_integral(x)) return at::_ops::pow__Scalar::redispatch(keys & below, x, y);
  binary_to(binary::pow, x, at::native::wrapped_scalar_tensor(y), &x);
  return x;
}
Tensor scalar_pow(keys_t keys, const Scalar& x, const Tensor& y) {
  if (x.isIntegral(/*includeBool=*/true) && is_integral(y)) {
    return at::_ops::pow_Scalar::redispatch(keys & below, x, y);
  }
  return binary_to(binary::pow, at::native::wrapped_scalar_tensor(x), y, nullptr);
}
Tensor& scalar_pow_out(keys_t keys, const Scalar& x, const Tensor& y, Tensor& out) {
  return write_out(scalar_pow(keys, x, y), out);
}

}  // namespace

void register_functions(registrar& r) {
  register_function<unary::exp>(r, "exp");
  register_function<unary::exp2>(r, "exp2");
  register_function<unary::expm1>(r, "expm1");
  register_function<unary::log>(r, "log");
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
  r.kernel("sqrt", TORCH_FN(root), "correctly rounded");
  r.kernel("sqrt_", TORCH_FN(sqrt_in), "correctly rounded");
  r.kernel("sqrt.out", TORCH_FN(sqrt_out), "correctly rounded");
  r.kernel("gelu", TORCH_FN(gelu_new), "potl's polynomial");
  r.kernel("gelu_", TORCH_FN(gelu_in), "potl's polynomial");
  r.kernel("gelu.out", TORCH_FN(gelu_out), "potl's polynomial");
  register_gradient<gradient::tanh>(r, "tanh_backward");
  register_gradient<gradient::sigmoid>(r, "sigmoid_backward");
  register_gradient<gradient::silu>(r, "silu_backward");
  r.kernel("mish_backward", TORCH_FN(gradient_from<gradient::mish>),
           "the derivative by the same operations");
  r.kernel("gelu_backward", TORCH_FN(gelu_gradient), "the derivative by the same operations");
  r.kernel("gelu_backward.grad_input", TORCH_FN(gelu_gradient_out),
           "the derivative by the same operations");
  r.kernel("logaddexp", TORCH_FN(binary_of<binary::logaddexp>), "potl's polynomial");
  r.kernel("logaddexp.out", TORCH_FN(binary_out<binary::logaddexp>), "potl's polynomial");
  r.kernel("xlogy.Tensor", TORCH_FN(binary_of<binary::xlogy>), "potl's polynomial");
  r.kernel("xlogy.OutTensor", TORCH_FN(binary_out<binary::xlogy>), "potl's polynomial");
  r.kernel("xlogy_.Tensor", TORCH_FN(xlogy_in), "potl's polynomial");
  r.kernel("xlogy.Scalar_Other", TORCH_FN(xlogy_scalar), "potl's polynomial");
  r.kernel("xlogy.Scalar_Self", TORCH_FN(scalar_xlogy), "potl's polynomial");
  const char* power = "potl's polynomial; x^2 is x x";
  r.kernel("pow.Tensor_Tensor", TORCH_FN(pow), power);
  r.kernel("pow.Tensor_Tensor_out", TORCH_FN(pow_out), power);
  r.kernel("pow_.Tensor", TORCH_FN(pow_in), power);
  r.kernel("pow.Tensor_Scalar", TORCH_FN(pow_scalar), power);
  r.kernel("pow.Tensor_Scalar_out", TORCH_FN(pow_scalar_out), power);
  r.kernel("pow_.Scalar", TORCH_FN(pow_scalar_in), power);
  r.kernel("pow.Scalar", TORCH_FN(scalar_pow), power);
  r.kernel("pow.Scalar_out", TORCH_FN(scalar_pow_out), power);
  r.composed({"ldexp.Tensor", "ldexp.out", "ldexp_"}, "mul and pow");
}

}  // namespace potl::libtorch::dispatch

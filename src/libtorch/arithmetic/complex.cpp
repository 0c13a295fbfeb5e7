// SPDX-License-Identifier: Apache-2.0
// Complex numbers (numeric/detail/complex.hpp), and the products, quotients and signs of real ones,
// which are torch's. What takes complex numbers apart into real ones stands with those: sums,
// matrix products, norms.
#include <potl/numeric/detail/complex.hpp>

#include <array>

#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/real.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/sgn_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "device.hpp"
#include "elements.hpp"
#include "registrar.hpp"

namespace potl::libtorch::dispatch {
namespace {

using at::Tensor;
using numeric::complex_binary;

/// Of the sizes and the type, row-major.
Tensor pairs(const char* name, const Tensor& x, c10::IntArrayRef sizes, c10::ScalarType type) {
  require_plain(name, x);
  if (type != at::kComplexFloat && type != at::kComplexDouble) {
    refuse(std::string(name) + " of " + c10::toString(type), "use complex64");
  }
  return at::view_as_real(x.to(type).resolve_conj().expand(sizes).contiguous());
}

/// The parts of x, of a complex type, beside a real number for both of them.
Tensor parts_of(const Tensor& x, c10::ScalarType type) {
  return at::view_as_real(x.to(type).resolve_conj());
}
Tensor for_parts(const Tensor& x, c10::ScalarType type) {
  return x.to(c10::toRealValueType(type)).unsqueeze(-1);
}

/// Parts beside each other as the numbers that they are.
Tensor of_parts(const Tensor& parts) {
  return at::view_as_complex(parts.stride(-1) == 1 ? parts : parts.contiguous());
}

Tensor combined(const char* name, complex_binary function, const Tensor& x, const Tensor& y) {
  const std::array both{x, y};
  const c10::ScalarType type = at::native::result_type(both);
  if (function == complex_binary::product && !x.is_complex()) return combined(name, function, y, x);
  if (!y.is_complex()) {
    const Tensor of = parts_of(x, type), by = for_parts(y, type);
    return of_parts(function == complex_binary::product ? of.mul(by) : of.div(by));
  }
  const std::vector<std::int64_t> sizes = at::infer_size(x.sizes(), y.sizes());
  const Tensor left = pairs(name, x, sizes, type), right = pairs(name, y, sizes, type);
  const Tensor out = like(left);
  with_real(compute_type(name, left.scalar_type()), [&](auto zero) {
    using Real = decltype(zero);
    numeric::apply(function, values<Real>(left), values<Real>(right), mutable_values<Real>(out),
                   executor());
  });
  return at::view_as_complex(out);
}

bool is_complex(const Tensor& x, const Tensor& y) { return x.is_complex() || y.is_complex(); }

Tensor mul(keys_t keys, const Tensor& x, const Tensor& y) {
  if (is_complex(x, y)) return combined("mul", complex_binary::product, x, y);
  return at::_ops::mul_Tensor::redispatch(keys & below, x, y);
}
Tensor& mul_in(keys_t keys, Tensor& x, const Tensor& y) {
  if (!is_complex(x, y)) return at::_ops::mul__Tensor::redispatch(keys & below, x, y);
  overwrite(x, combined("mul_", complex_binary::product, x, y));
  return x;
}
Tensor& mul_out(keys_t keys, const Tensor& x, const Tensor& y, Tensor& out) {
  if (is_complex(x, y)) return write_out(combined("mul", complex_binary::product, x, y), out);
  return at::_ops::mul_out::redispatch(keys & below, x, y, out);
}

// torch's kernel for CUDA multiplies by the reciprocal of a number of the CPU: there the number is
// made one of the device, and the quotient agrees with the CPU's.
bool is_number_beside(const Tensor& x, const Tensor& y) {
  return y.dim() == 0 && y.device().is_cpu() && is_elsewhere(x);
}
Tensor div_there(keys_t keys, const Tensor& x, const Tensor& y) {
  const std::array both{x, y};
  const c10::ScalarType common = at::native::result_type(both);
  const c10::ScalarType type = c10::isIntegralType(common, /*includeBool=*/true)
                                   ? c10::typeMetaToScalarType(c10::get_default_dtype())
                                   : common;
  const c10::ScalarType wide = at::toOpMathType(type);
  const Tensor divisor = number_there(y, x.options().dtype(wide));
  return at::_ops::div_Tensor::redispatch(keys & below, x.to(wide), divisor).to(type);
}
Tensor div(keys_t keys, const Tensor& x, const Tensor& y) {
  if (is_complex(x, y)) return combined("div", complex_binary::quotient, x, y);
  if (is_number_beside(x, y)) return div_there(keys, x, y);
  return at::_ops::div_Tensor::redispatch(keys & below, x, y);
}
Tensor& div_in(keys_t keys, Tensor& x, const Tensor& y) {
  if (is_complex(x, y)) {
    overwrite(x, combined("div_", complex_binary::quotient, x, y));
  } else if (is_number_beside(x, y)) {
    overwrite(x, div_there(keys, x, y));
  } else {
    return at::_ops::div__Tensor::redispatch(keys & below, x, y);
  }
  return x;
}
Tensor& div_out(keys_t keys, const Tensor& x, const Tensor& y, Tensor& out) {
  if (is_complex(x, y)) return write_out(combined("div", complex_binary::quotient, x, y), out);
  if (is_number_beside(x, y)) return write_out(div_there(keys, x, y), out);
  return at::_ops::div_out::redispatch(keys & below, x, y, out);
}

// In vectors, torch's kernel subtracts complex numbers from 0: +0 stays +0 there, and turns to -0
// in the elements that are left over.
Tensor opposite(const Tensor& x) { return of_parts(parts_of(x, x.scalar_type()).neg()); }
Tensor neg(keys_t keys, const Tensor& x) {
  return x.is_complex() ? opposite(x) : at::_ops::neg::redispatch(keys & below, x);
}
Tensor& neg_in(keys_t keys, Tensor& x) {
  if (!x.is_complex()) return at::_ops::neg_::redispatch(keys & below, x);
  overwrite(x, opposite(x));
  return x;
}
Tensor& neg_out(keys_t keys, const Tensor& x, Tensor& out) {
  if (x.is_complex()) return write_out(opposite(x), out);
  return at::_ops::neg_out::redispatch(keys & below, x, out);
}

Tensor complex_magnitude(const Tensor& x) {
  const Tensor from = pairs("abs", x, x.sizes(), x.scalar_type());
  const Tensor out = make(x.sizes(), from.scalar_type());
  with_real(compute_type("abs", from.scalar_type()), [&](auto zero) {
    using Real = decltype(zero);
    numeric::magnitudes(values<Real>(from), mutable_values<Real>(out), executor());
  });
  return out;
}
Tensor& abs_out(keys_t keys, const Tensor& x, Tensor& out) {
  if (x.is_complex()) return write_out(complex_magnitude(x), out);
  return at::_ops::abs_out::redispatch(keys & below, x, out);
}

Tensor complex_direction(const Tensor& x) {
  const Tensor from = pairs("sgn", x, x.sizes(), x.scalar_type());
  const Tensor out = like(from);
  with_real(compute_type("sgn", from.scalar_type()), [&](auto zero) {
    using Real = decltype(zero);
    numeric::directions(values<Real>(from), mutable_values<Real>(out), executor());
  });
  return at::view_as_complex(out);
}
Tensor sgn(keys_t keys, const Tensor& x) {
  if (x.is_complex()) return complex_direction(x);
  return at::_ops::sgn::redispatch(keys & below, x);
}
Tensor reciprocal(keys_t keys, const Tensor& x) {
  if (x.is_complex()) return at::native::wrapped_scalar_tensor(1).div(x);
  return at::_ops::reciprocal::redispatch(keys & below, x);
}

/// Of a real number: 0, or pi below 0.
Tensor angle(const Tensor& x) {
  if (x.is_complex()) return at::atan2(at::imag(x), at::real(x));
  const Tensor real = is_integral(x) ? x.to(c10::get_default_dtype_as_scalartype()) : x;
  constexpr double pi = 0x1.921fb54442d18p+1;
  return at::where(real != real, real, at::zeros_like(real).masked_fill_(real < 0, pi));
}

Tensor& polar_out(const Tensor& magnitude, const Tensor& angle, Tensor& out) {
  const Tensor both = at::stack({magnitude * angle.cos(), magnitude * angle.sin()}, -1);
  return write_out(at::view_as_complex(both), out);
}

}  // namespace

void register_complex(registrar& r) {
  const char* one = "one IEEE operation; complex numbers: numeric/detail/complex.hpp";
  r.kernel<mul>("mul.Tensor", one);
  r.kernel<mul_in>("mul_.Tensor", one);
  r.kernel<mul_out>("mul.out", one);
  r.kernel<div>("div.Tensor", one);
  r.kernel<div_in>("div_.Tensor", one);
  r.kernel<div_out>("div.out", one);
  r.kernel<neg>("neg", one);
  r.kernel<neg_in>("neg_", one);
  r.kernel<neg_out>("neg.out", one);
  r.kernel<abs_out>("abs.out", one);
  r.kernel<sgn>("sgn", one, {"sgn_", "sgn.out"});
  r.kernel<reciprocal>("reciprocal", one, {"reciprocal_", "reciprocal.out"});
  r.kernel<angle>("angle", "atan2 of the parts; of a real number 0 or pi", {"angle.out"});
  r.kernel<polar_out>("polar.out", "magnitude times cosine and sine");
  r.exact({"complex.out", "conj_physical_", "conj_physical.out"}, "copies");
  r.composed({"_conj_physical", "abs", "abs_", "complex", "polar"},
             "the form that writes its result");
}

}  // namespace potl::libtorch::dispatch

// SPDX-License-Identifier: Apache-2.0
// The functions of numeric/elementwise.hpp for any form of lanes: the one source for every
// instruction set and for CUDA. Double lanes compute in double; float lanes widen, compute and
// round once, unless there is a float form.
#pragma once

#include <potl/numeric/detail/random.hpp>
#include <potl/numeric/elementwise.hpp>

#include "activations.hpp"
#include "float_functions.hpp"

namespace potl::numeric::elementwise {
namespace {

#if !defined(__CUDACC__)
/// Rare (initial weights): lane by lane.
template <class R>
POTL_INLINE R inverse_erf(R x) {
  double values[R::lanes];
  x.store(values);
  for (double& value : values) value = potl::erfinv(value);
  return R::load(values);
}
#endif

/// 1 / sqrt(x), two roundings, and one Newton step that makes up for them.
template <class R>
POTL_INLINE R rsqrt(R x) {
  const R one = constant<R>(1.0);
  const R r = one / sqrt(x);
  const R s = r * x;
  const R lost = fma(r, x, negative(s));
  const R off = fma(negative(s), r, one) - lost * r;
  const R better = fma(constant<R>(0.5) * r, off, r);
  // At 0 and infinity the step is NaN.
  return select(is_nan(off), r, better);
}

template <unary F, class R>
POTL_INLINE R in_double(R x) {
  if constexpr (F == unary::exp) return exp(x);
  if constexpr (F == unary::exp2) return exp2(x);
  if constexpr (F == unary::expm1) return expm1(x);
  if constexpr (F == unary::log) return log(x);
  if constexpr (F == unary::log2) return log2(x);
  if constexpr (F == unary::log10) return log10(x);
  if constexpr (F == unary::log1p) return log1p(x);
  if constexpr (F == unary::rsqrt) return rsqrt(x);
  if constexpr (F == unary::sin) return sin(x);
  if constexpr (F == unary::cos) return cos(x);
  if constexpr (F == unary::tan) return tan(x);
  if constexpr (F == unary::sinh) return sinh(x);
  if constexpr (F == unary::cosh) return cosh(x);
  if constexpr (F == unary::tanh) return tanh(x);
  if constexpr (F == unary::sigmoid) return sigmoid(x);
  if constexpr (F == unary::log_sigmoid) return log_sigmoid(x);
  if constexpr (F == unary::softplus) return softplus(x);
  if constexpr (F == unary::erf) return erf(x);
  if constexpr (F == unary::erfc) return erfc(x);
  if constexpr (F == unary::erfinv) return inverse_erf(x);
  if constexpr (F == unary::gelu) return gelu(x);
  if constexpr (F == unary::gelu_tanh) return gelu_tanh(x);
  if constexpr (F == unary::silu) return silu(x);
  if constexpr (F == unary::mish) return mish(x);
}

template <gradient F, class R>
POTL_INLINE R in_double(R dy, R x) {
  if constexpr (F == gradient::log_sigmoid) return dy * sigmoid(negative(x));
  if constexpr (F == gradient::softplus) return dy * sigmoid(x);
  if constexpr (F == gradient::gelu) return dy * gelu_slope(x);
  if constexpr (F == gradient::gelu_tanh) return dy * gelu_tanh_slope(x);
  if constexpr (F == gradient::silu) return dy * silu_slope(x);
  if constexpr (F == gradient::mish) return dy * mish_slope(x);
}

template <binary F, class R>
POTL_INLINE R in_double(R x, R y) {
  if constexpr (F == binary::pow) return pow(x, y);
  if constexpr (F == binary::logaddexp) return logaddexp(x, y);
  if constexpr (F == binary::xlogy) return xlogy(x, y);
}

template <class R>
constexpr bool is_double = sizeof(typename R::element) == 8;

/// Functions with a float form.
template <unary F>
constexpr bool is_short =
    F == unary::exp || F == unary::log || F == unary::tanh || F == unary::erf ||
    F == unary::sigmoid || F == unary::silu || F == unary::gelu || F == unary::rsqrt;
/// Those whose NaN is the one NaN.
template <unary F>
constexpr bool is_canonical = F == unary::tanh || F == unary::erf;
template <unary F, class R>
POTL_INLINE R in_element(R x) {
  if constexpr (F == unary::exp) return in_float::exp(x);
  if constexpr (F == unary::log) return in_float::log(x);
  if constexpr (F == unary::tanh) return in_float::tanh(x);
  if constexpr (F == unary::erf) return in_float::erf(x);
  if constexpr (F == unary::sigmoid) return in_float::sigmoid(x);
  if constexpr (F == unary::silu) return in_float::silu(x);
  if constexpr (F == unary::gelu) return in_float::gelu(x);
  if constexpr (F == unary::rsqrt) return rsqrt(x);
}

/// The function at each lane.
template <unary F, class R>
POTL_INLINE R compute(R x) {
  if constexpr (is_double<R>) {
    return canonical(in_double<F>(x));
  } else if constexpr (is_canonical<F>) {
    return in_element<F>(x);
  } else if constexpr (is_short<F>) {
    return canonical(in_element<F>(x));
  } else {
    typename R::wide parts[R::wides];
    for (int i = 0; i < R::wides; ++i) parts[i] = in_double<F>(x.widen(i));
    return canonical(R::narrow(parts));
  }
}

/// Derivatives with a form in the element type; of the result for tanh and sigmoid.
template <auto F, class R>
constexpr bool is_short_slope = [] {
  if constexpr (std::is_same_v<decltype(F), gradient>) {
    if (F == gradient::tanh || F == gradient::sigmoid) return true;
    return !is_double<R> && (F == gradient::gelu || F == gradient::silu ||
                             F == gradient::softplus || F == gradient::log_sigmoid);
  }
  return false;
}();
template <gradient F, class R>
POTL_INLINE R slope_in_element(R x) {
  if constexpr (F == gradient::tanh) return fma(negative(x), x, constant<R>(1.0));
  if constexpr (F == gradient::sigmoid) return (constant<R>(1.0) - x) * x;
  if constexpr (F == gradient::gelu) return in_float::gelu_slope(x);
  if constexpr (F == gradient::silu) return in_float::silu_slope(x);
  if constexpr (F == gradient::softplus) return in_float::sigmoid(x);
  if constexpr (F == gradient::log_sigmoid) return in_float::sigmoid(negative(x));
}

template <auto F, class R>
POTL_INLINE R compute(R a, R b) {
  if constexpr (is_short_slope<F, R>) {
    return canonical(a * slope_in_element<F>(b));
  } else if constexpr (is_double<R>) {
    return canonical(in_double<F>(a, b));
  } else {
    typename R::wide parts[R::wides];
    for (int i = 0; i < R::wides; ++i) parts[i] = in_double<F>(a.widen(i), b.widen(i));
    return canonical(R::narrow(parts));
  }
}

}  // namespace
}  // namespace potl::numeric::elementwise

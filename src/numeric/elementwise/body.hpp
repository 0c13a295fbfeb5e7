// SPDX-License-Identifier: Apache-2.0
// Loops over elements for any form of lanes. Included by one source file for each instruction set,
// which compiles its own copies (see lanes.hpp).
#pragma once

#include "cells.hpp"
#include "combinations.hpp"
#include "loops.hpp"

namespace potl::numeric::elementwise {
namespace {

template <unary F, class R>
void one_of(const typename R::element* x, typename R::element* y, std::size_t count) {
  // Short functions gain from several vectors at a time.
  constexpr std::size_t steps = is_short<F> && R::lanes > 1 && !is_double<R> ? 4 : 1;
  map<R, steps>(x, y, count, [](R a) { return compute<F>(a); });
}
template <auto F, class R>
void two_of(stream<typename R::element> x, stream<typename R::element> y, typename R::element* out,
            std::size_t count) {
  map<R>(x, y, out, count, [](R a, R b) { return compute<F>(a, b); });
}

template <class R>
void one(unary f, const typename R::element* x, typename R::element* y, std::size_t count) {
  switch (f) {
    case unary::exp: return one_of<unary::exp, R>(x, y, count);
    case unary::exp2: return one_of<unary::exp2, R>(x, y, count);
    case unary::expm1: return one_of<unary::expm1, R>(x, y, count);
    case unary::log: return one_of<unary::log, R>(x, y, count);
    case unary::log2: return one_of<unary::log2, R>(x, y, count);
    case unary::log10: return one_of<unary::log10, R>(x, y, count);
    case unary::log1p: return one_of<unary::log1p, R>(x, y, count);
    case unary::rsqrt: return one_of<unary::rsqrt, R>(x, y, count);
    case unary::sin: return one_of<unary::sin, R>(x, y, count);
    case unary::cos: return one_of<unary::cos, R>(x, y, count);
    case unary::tan: return one_of<unary::tan, R>(x, y, count);
    case unary::sinh: return one_of<unary::sinh, R>(x, y, count);
    case unary::cosh: return one_of<unary::cosh, R>(x, y, count);
    case unary::tanh: return one_of<unary::tanh, R>(x, y, count);
    case unary::sigmoid: return one_of<unary::sigmoid, R>(x, y, count);
    case unary::log_sigmoid: return one_of<unary::log_sigmoid, R>(x, y, count);
    case unary::softplus: return one_of<unary::softplus, R>(x, y, count);
    case unary::erf: return one_of<unary::erf, R>(x, y, count);
    case unary::erfc: return one_of<unary::erfc, R>(x, y, count);
    case unary::erfinv: return one_of<unary::erfinv, R>(x, y, count);
    case unary::gelu: return one_of<unary::gelu, R>(x, y, count);
    case unary::gelu_tanh: return one_of<unary::gelu_tanh, R>(x, y, count);
    case unary::silu: return one_of<unary::silu, R>(x, y, count);
    case unary::mish: return one_of<unary::mish, R>(x, y, count);
  }
}

template <class R>
void slope(gradient f, const typename R::element* dy, const typename R::element* operand,
           typename R::element* dx, std::size_t count) {
  const stream<typename R::element> a{dy, 1}, b{operand, 1};
  switch (f) {
    case gradient::tanh: return two_of<gradient::tanh, R>(a, b, dx, count);
    case gradient::sigmoid: return two_of<gradient::sigmoid, R>(a, b, dx, count);
    case gradient::log_sigmoid: return two_of<gradient::log_sigmoid, R>(a, b, dx, count);
    case gradient::softplus: return two_of<gradient::softplus, R>(a, b, dx, count);
    case gradient::gelu: return two_of<gradient::gelu, R>(a, b, dx, count);
    case gradient::gelu_tanh: return two_of<gradient::gelu_tanh, R>(a, b, dx, count);
    case gradient::silu: return two_of<gradient::silu, R>(a, b, dx, count);
    case gradient::mish: return two_of<gradient::mish, R>(a, b, dx, count);
  }
}

template <class R>
void powers(stream<typename R::element> x, stream<typename R::element> y, typename R::element* out,
            std::size_t count) {
  const bool is_common = x.step == 1 && y.step == 0;
  // What pow and any bounds around it come to, without either.
  if (is_common && *y.data == 2) {
    return map<R>(x.data, out, count, [](R a) { return canonical(a * a); });
  }
  if constexpr (!is_double<R>) {
    if (is_common) {
      const double power = *y.data;
      // Not of double: there pow is within 1 ulp.
      if (power == 1) return map<R>(x.data, out, count, [](R a) { return canonical(a); });
      const auto loop = [&](const auto& formula) {
        map<R>(x.data, out, count, [&](R a) { return common_power(a, power, formula); });
      };
      if (with_common_power<R>(power, loop)) return;
    }
  }
  two_of<binary::pow, R>(x, y, out, count);
}

template <class R>
void two(binary f, stream<typename R::element> x, stream<typename R::element> y,
         typename R::element* out, std::size_t count) {
  switch (f) {
    case binary::pow: return powers<R>(x, y, out, count);
    case binary::logaddexp: return two_of<binary::logaddexp, R>(x, y, out, count);
    case binary::xlogy: return two_of<binary::xlogy, R>(x, y, out, count);
  }
}

template <class R>
void combine(combination kind, stream<typename R::element> a, stream<typename R::element> b,
             stream<typename R::element> c, typename R::element scalar, typename R::element* out,
             std::size_t count) {
  const stream<typename R::element> in[] = {a, b, c};
  const R s(scalar);
  switch (kind) {
    case combination::add_scaled:
      return map<R>(a, b, out, count, [&](R x, R y) { return canonical(fma(s, y, x)); });
    case combination::lerp:
      return for_lanes<R, 3, 1>(count, in, &out, false,
                                [](const R* v, R* y) { y[0] = canonical(lerp(v[0], v[1], v[2])); });
    case combination::addcmul:
      return for_lanes<R, 3, 1>(count, in, &out, false, [&](const R* v, R* y) {
        y[0] = canonical(fma(s * v[1], v[2], v[0]));
      });
    case combination::addcdiv:
      return for_lanes<R, 3, 1>(count, in, &out, false, [&](const R* v, R* y) {
        y[0] = canonical(fma(s, v[1] / v[2], v[0]));
      });
  }
}

template <class R>
void sgd(const void* scalars, typename R::element* p, const typename R::element* g,
         typename R::element* m, std::size_t count) {
  using Real = typename R::element;
  const auto& s = *static_cast<const sgd_scalars<Real>*>(scalars);
  const stream<Real> in[] = {{g, 1}};
  Real* const out[] = {p, m};
  if (s.has_momentum) {
    for_lanes<R, 1, 2>(count, in, out, true,
                       [&](const R* v, R* y) { sgd_step(s, y[0], v[0], y[1]); });
  } else {
    for_lanes<R, 1, 1>(count, in, out, true, [&](const R* v, R* y) {
      R unused = v[0];
      sgd_step(s, y[0], v[0], unused);
    });
  }
}

template <class R>
void adam(const void* scalars, typename R::element* p, const typename R::element* g,
          typename R::element* m, typename R::element* v, typename R::element* u,
          std::size_t count) {
  using Real = typename R::element;
  const auto& s = *static_cast<const adam_scalars<Real>*>(scalars);
  const stream<Real> in[] = {{g, 1}};
  Real* const out[] = {p, m, v, u};
  if (s.amsgrad) {
    for_lanes<R, 1, 4>(count, in, out, true,
                       [&](const R* x, R* y) { adam_step(s, y[0], x[0], y[1], y[2], y[3]); });
  } else {
    for_lanes<R, 1, 3>(count, in, out, true, [&](const R* x, R* y) {
      R unused = x[0];
      adam_step(s, y[0], x[0], y[1], y[2], unused);
    });
  }
}

template <class R>
void softplus_loop(const void* scalars, const typename R::element* x, typename R::element* y,
                   std::size_t count) {
  const auto& s = *static_cast<const softplus_scalars<typename R::element>*>(scalars);
  map<R>(x, y, count, [&](R a) { return softplus(s, a); });
}
template <class R>
void softplus_slope_loop(const void* scalars, const typename R::element* dy,
                         const typename R::element* x, typename R::element* dx, std::size_t count) {
  const auto& s = *static_cast<const softplus_scalars<typename R::element>*>(scalars);
  map<R>({dy, 1}, {x, 1}, dx, count, [&](R a, R b) { return softplus_slope(s, a, b); });
}
template <class R>
void elu_loop(const void* scalars, const typename R::element* x, typename R::element* y,
              std::size_t count) {
  const auto& s = *static_cast<const elu_scalars<typename R::element>*>(scalars);
  map<R>(x, y, count, [&](R a) { return elu(s, a); });
}
template <class R>
void elu_slope_loop(const void* scalars, const typename R::element* dy,
                    const typename R::element* x, typename R::element* dx, std::size_t count) {
  const auto& s = *static_cast<const elu_scalars<typename R::element>*>(scalars);
  map<R>({dy, 1}, {x, 1}, dx, count, [&](R a, R b) { return elu_slope(s, a, b); });
}

template <class R>
constexpr kernels<typename R::element> kernels_of{
    &one<R>,      &slope<R>,          &two<R>,           &combine<R>,
    &sgd<R>,      &adam<R>,           &softplus_loop<R>, &softplus_slope_loop<R>,
    &elu_loop<R>, &elu_slope_loop<R>, &lstm_loop<R>,     &lstm_slope_loop<R>};

}  // namespace
}  // namespace potl::numeric::elementwise

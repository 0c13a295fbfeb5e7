// SPDX-License-Identifier: Apache-2.0
// The formulas of numeric/combine.hpp at each lane. Scalars have been rounded to the element
// type.
#pragma once

#include "functions.hpp"

namespace potl::numeric::elementwise {
namespace {

template <class R>
POTL_INLINE R lerp(R a, R b, R weight) {
  const R d = b - a;
  const auto near = less(magnitude(weight), constant<R>(0.5));
  return fma(select(near, weight, weight - constant<R>(1.0)), d, select(near, a, b));
}

template <class Real>
struct sgd_scalars {
  Real negative_rate, momentum, kept, weight_decay;
  bool decays, has_momentum, nesterov, maximize, first_step;
};
template <class R>
POTL_INLINE void sgd_step(const sgd_scalars<typename R::element>& s, R& p, R g, R& m) {
  if (s.maximize) g = negative(g);
  if (s.decays) g = fma(R(s.weight_decay), p, g);
  if (s.has_momentum) {
    m = canonical(s.first_step ? g : fma(R(s.kept), g, m * R(s.momentum)));
    g = s.nesterov ? fma(R(s.momentum), m, g) : m;
  }
  p = canonical(fma(R(s.negative_rate), g, p));
}

template <class Real>
struct adam_scalars {
  Real negative_step, root, epsilon, weight_decay, shrink, weight1, beta2, weight2;
  bool decays, decoupled, maximize, amsgrad;
};
template <class R>
POTL_INLINE void adam_step(const adam_scalars<typename R::element>& s, R& p, R g, R& m, R& v,
                           R& u) {
  if (s.maximize) g = negative(g);
  if (s.decays) {
    if (s.decoupled) {
      p = p * R(s.shrink);
    } else {
      g = fma(R(s.weight_decay), p, g);
    }
  }
  m = canonical(lerp(m, g, R(s.weight1)));
  v = canonical(fma(R(s.weight2) * g, g, v * R(s.beta2)));
  R w = v;
  // A NaN of either stays.
  if (s.amsgrad) w = u = canonical(select(either(less(v, u), is_nan(u)), u, v));
  p = canonical(fma(R(s.negative_step), m / (sqrt(w) / R(s.root) + R(s.epsilon)), p));
}

template <class Real>
struct softplus_scalars {
  Real beta, threshold;
};
template <class R>
POTL_INLINE R softplus(const softplus_scalars<typename R::element>& s, R x) {
  const R scaled = x * R(s.beta);
  const R value = compute<unary::softplus>(scaled) / R(s.beta);
  return canonical(select(less(R(s.threshold), scaled), x, value));
}
template <class R>
POTL_INLINE R softplus_slope(const softplus_scalars<typename R::element>& s, R dy, R x) {
  const R scaled = x * R(s.beta);
  const R value = compute<gradient::softplus>(dy, scaled);
  return canonical(select(less(R(s.threshold), scaled), dy, value));
}

template <class Real>
struct elu_scalars {
  Real low, scale, input_scale;  // low is alpha scale
  bool of_result;
};
template <class R>
POTL_INLINE R elu(const elu_scalars<typename R::element>& s, R x) {
  const R value = compute<unary::expm1>(x * R(s.input_scale)) * R(s.low);
  return canonical(select(less(constant<R>(0.0), x), x * R(s.scale), value));
}
template <class R>
POTL_INLINE R elu_slope(const elu_scalars<typename R::element>& s, R dy, R x) {
  const R outer = dy * R(s.input_scale);
  R value;
  if (s.of_result) {
    value = outer * (x + R(s.low));
  } else {
    value = (outer * R(s.low)) * compute<unary::exp>(x * R(s.input_scale));
  }
  return canonical(select(less(constant<R>(0.0), x), dy * R(s.scale), value));
}

}  // namespace
}  // namespace potl::numeric::elementwise

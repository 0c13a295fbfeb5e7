// SPDX-License-Identifier: Apache-2.0
// Softmax and normalisation of contiguous rows for any form of lanes.
#pragma once

#include "body.hpp"

namespace potl::numeric::reductions {
namespace {

/// function(i, lanes) for i = 0, lanes, ... below count.
template <class R, class Function>
POTL_INLINE void each(std::size_t count, const Function& function) {
  constexpr std::size_t lanes = R::lanes;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) function(i, lanes);
  if (i < count) function(i, count - i);
}

/// The maximum of a row, 0 where it is infinite: what exponents are taken relative to.
template <class R>
POTL_INLINE R anchor(const typename R::element* x, std::size_t count, R& maximum) {
  maximum = R(reduce_all<largest, R>(
      count, [&](std::size_t i, std::size_t lanes) { return load<R>(x + i, lanes); }));
  return select(equal(magnitude(maximum), infinity<R>()), constant<R>(0.0), maximum);
}

/// exp of what is at most 0, or NaN. Processors take a hundred cycles for a result that underflows:
/// where it is 0 anyway, a mask above all, nothing is computed.
template <class R>
POTL_INLINE R exp_down(R x) {
  const auto gone = less(x, constant<R>(sizeof(typename R::element) == 4 ? -104.0 : -746.0));
  const R zero = constant<R>(0.0);
  return select(gone, zero, compute<unary::exp>(select(gone, zero, x)));
}

template <class R>
void softmax(const typename R::element* x, typename R::element* y, typename R::element* logsumexp,
             std::size_t rows, std::size_t count) {
  for (std::size_t row = 0; row < rows; ++row, x += count, y += count) {
    R maximum;
    const R m = anchor<R>(x, count, maximum);
    const R sum(reduce_all<adding, R>(count, [&](std::size_t i, std::size_t lanes) {
      const R e = exp_down(load<R>(x + i, lanes) - m);
      store(e, y + i, lanes);
      return e;
    }));
    if (logsumexp != nullptr)
      canonical(m + compute<unary::log>(sum)).store_first(logsumexp + row, 1);
    each<R>(count, [&](std::size_t i, std::size_t lanes) {
      store(canonical(load<R>(y + i, lanes) / sum), y + i, lanes);
    });
  }
}

template <class R>
POTL_INLINE R sum_of_exp(const typename R::element* x, std::size_t count, R m) {
  return R(reduce_all<adding, R>(count, [&](std::size_t i, std::size_t lanes) {
    return exp_down(load<R>(x + i, lanes) - m);
  }));
}

/// several(first, here, m, log_sums) for `here` neighbouring rows, whose logarithms are one
/// vector's work.
template <class R, class Rows>
POTL_INLINE void each_log_sum(const typename R::element* x, std::size_t rows, std::size_t count,
                              const Rows& several) {
  using Real = typename R::element;
  // What several rows need twice stays in the first level of the cache.
  constexpr std::size_t lanes = R::lanes, cached = 8192;
  const std::size_t together = lanes * count <= cached ? lanes : 1;
  for (std::size_t first = 0; first < rows; first += together) {
    const std::size_t here = rows - first < together ? rows - first : together;
    Real m[lanes], sums[lanes];
    for (std::size_t j = 0; j < lanes; ++j) m[j] = sums[j] = Real{1};
    for (std::size_t j = 0; j < here; ++j) {
      const Real* row = x + (first + j) * count;
      R maximum;
      const R anchored = anchor<R>(row, count, maximum);
      anchored.store_first(m + j, 1);
      sum_of_exp(row, count, anchored).store_first(sums + j, 1);
    }
    compute<unary::log>(R::load(sums)).store(sums);
    several(first, here, m, sums);
  }
}

template <class R>
void log_softmax(const typename R::element* x, typename R::element* y, std::size_t rows,
                 std::size_t count) {
  each_log_sum<R>(x, rows, count,
                  [&](std::size_t first, std::size_t here, const auto* m, const auto* log_sums) {
                    for (std::size_t j = 0; j < here; ++j) {
                      const R anchored(m[j]), log_sum(log_sums[j]);
                      const std::size_t row = (first + j) * count;
                      each<R>(count, [&](std::size_t i, std::size_t lanes) {
                        store(canonical((load<R>(x + row + i, lanes) - anchored) - log_sum),
                              y + row + i, lanes);
                      });
                    }
                  });
}

template <class R>
void logsumexp(const typename R::element* x, typename R::element* y, std::size_t rows,
               std::size_t count) {
  each_log_sum<R>(x, rows, count,
                  [&](std::size_t first, std::size_t here, const auto* m, const auto* log_sums) {
                    canonical(R::load(m) + R::load(log_sums)).store_first(y + first, here);
                  });
}

template <class R>
void softmax_backward(const typename R::element* dy, const typename R::element* y,
                      typename R::element* dx, std::size_t rows, std::size_t count) {
  for (std::size_t row = 0; row < rows; ++row, dy += count, y += count, dx += count) {
    const R sum(reduce_all<adding, R>(count, [&](std::size_t i, std::size_t lanes) {
      return load<R>(dy + i, lanes) * load<R>(y + i, lanes);
    }));
    each<R>(count, [&](std::size_t i, std::size_t lanes) {
      const R value = load<R>(y + i, lanes) * (load<R>(dy + i, lanes) - sum);
      store(canonical(value), dx + i, lanes);
    });
  }
}

template <class R>
void log_softmax_backward(const typename R::element* dy, const typename R::element* y,
                          typename R::element* dx, std::size_t rows, std::size_t count) {
  for (std::size_t row = 0; row < rows; ++row, dy += count, y += count, dx += count) {
    const R sum(reduce_all<adding, R>(
        count, [&](std::size_t i, std::size_t lanes) { return load<R>(dy + i, lanes); }));
    each<R>(count, [&](std::size_t i, std::size_t lanes) {
      const R e = compute<unary::exp>(load<R>(y + i, lanes));
      store(canonical(load<R>(dy + i, lanes) - e * sum), dx + i, lanes);
    });
  }
}

template <class R>
void normalize(const typename R::element* x, typename R::element mean,
               typename R::element reciprocal, const typename R::element* w,
               const typename R::element* b, bool one_weight, typename R::element* y,
               std::size_t count) {
  const R m(mean), r(reciprocal);
  // -0 is what a sum with nothing added needs.
  const R one = constant<R>(1.0), none = constant<R>(-0.0);
  const auto affine = [&](const auto& weight, const auto& bias) {
    each<R>(count, [&](std::size_t i, std::size_t lanes) {
      const R h = (load<R>(x + i, lanes) - m) * r;
      store(canonical(fma(h, weight(i, lanes), bias(i, lanes))), y + i, lanes);
    });
  };
  const auto array = [](const typename R::element* from) {
    return [from](std::size_t i, std::size_t lanes) { return load<R>(from + i, lanes); };
  };
  const auto fixed = [](R value) { return [value](std::size_t, std::size_t) { return value; }; };
  if (one_weight || (w == nullptr && b == nullptr)) {
    affine(fixed(w == nullptr ? one : R(*w)), fixed(b == nullptr ? none : R(*b)));
  } else if (b == nullptr) {
    affine(array(w), fixed(none));
  } else if (w == nullptr) {
    affine(fixed(one), array(b));
  } else {
    affine(array(w), array(b));
  }
}

template <class R>
void normalize_columns(const typename R::element* x, const typename R::element* m,
                       const typename R::element* r, const typename R::element* w,
                       const typename R::element* b, typename R::element* y, std::size_t rows,
                       std::size_t count) {
  const R one = constant<R>(1.0), none = constant<R>(-0.0);
  for (std::size_t row = 0; row < rows; ++row, x += count, y += count) {
    each<R>(count, [&](std::size_t i, std::size_t lanes) {
      const R h = (load<R>(x + i, lanes) - load<R>(m + i, lanes)) * load<R>(r + i, lanes);
      const R weight = w == nullptr ? one : load<R>(w + i, lanes);
      const R bias = b == nullptr ? none : load<R>(b + i, lanes);
      store(canonical(fma(h, weight, bias)), y + i, lanes);
    });
  }
}

template <class R>
void slope_columns(const typename R::element* dy, const typename R::element* x,
                   const typename R::element* m, const typename R::element* r,
                   const typename R::element* a, const typename R::element* b,
                   const typename R::element* factor, typename R::element* dx, std::size_t rows,
                   std::size_t count) {
  for (std::size_t row = 0; row < rows; ++row, dy += count, x += count, dx += count) {
    each<R>(count, [&](std::size_t i, std::size_t lanes) {
      const R h = (load<R>(x + i, lanes) - load<R>(m + i, lanes)) * load<R>(r + i, lanes);
      const R slope = (load<R>(dy + i, lanes) - load<R>(a + i, lanes)) - h * load<R>(b + i, lanes);
      store(canonical(slope * load<R>(factor + i, lanes)), dx + i, lanes);
    });
  }
}

template <class R>
void moments(const typename R::element* x, typename R::element epsilon, std::size_t count,
             typename R::element* mean, typename R::element* reciprocal) {
  using Real = typename R::element;
  using S = single<Real>;
  const S n(static_cast<Real>(count));
  const S sum(reduce_all<adding, R>(
      count, [&](std::size_t i, std::size_t lanes) { return load<R>(x + i, lanes); }));
  const S m = sum / n;
  const R wide_m(m.v);
  const S squares(reduce_all<adding, R>(count, [&](std::size_t i, std::size_t lanes) {
    const R d = load<R>(x + i, lanes) - wide_m;
    return d * d;
  }));
  *mean = canonical(m).v;
  *reciprocal = canonical(S(Real{1}) / sqrt(squares / n + S(epsilon))).v;
}

template <class R>
void normalize_slope(const typename R::element* dy, const typename R::element* x,
                     typename R::element mean, typename R::element reciprocal,
                     typename R::element a, typename R::element b, typename R::element factor,
                     typename R::element* dx, std::size_t count) {
  const R m(mean), r(reciprocal), wide_a(a), wide_b(b), f(factor);
  each<R>(count, [&](std::size_t i, std::size_t lanes) {
    const R h = (load<R>(x + i, lanes) - m) * r;
    const R value = ((load<R>(dy + i, lanes) - wide_a) - h * wide_b) * f;
    store(canonical(value), dx + i, lanes);
  });
}

template <class R>
void normalize_backward(const typename R::element* dy, const typename R::element* x,
                        typename R::element mean, typename R::element reciprocal,
                        const typename R::element* w, typename R::element* dx, std::size_t count) {
  using Real = typename R::element;
  using S = single<Real>;
  const R m(mean), r(reciprocal), one = constant<R>(1.0);
  const auto weight = [&](std::size_t i, std::size_t lanes) {
    return w == nullptr ? one : load<R>(w + i, lanes);
  };
  const auto gradient_at = [&](std::size_t i, std::size_t lanes) {
    return load<R>(dy + i, lanes) * weight(i, lanes);
  };
  const auto normalized = [&](std::size_t i, std::size_t lanes) {
    return (load<R>(x + i, lanes) - m) * r;
  };
  const S n(static_cast<Real>(count));
  const S a = S(reduce_all<adding, R>(count, gradient_at)) / n;
  const S b = S(reduce_all<adding, R>(count,
                                      [&](std::size_t i, std::size_t lanes) {
                                        return gradient_at(i, lanes) * normalized(i, lanes);
                                      })) /
              n;
  const R wide_a(a.v), wide_b(b.v);
  each<R>(count, [&](std::size_t i, std::size_t lanes) {
    const R value = ((gradient_at(i, lanes) - wide_a) - normalized(i, lanes) * wide_b) * r;
    store(canonical(value), dx + i, lanes);
  });
}

template <class R>
constexpr kernels<typename R::element> kernels_of{&rows<R>,
                                                  &columns<R>,
                                                  &pieces<R>,
                                                  &terms<R>,
                                                  &softmax<R>,
                                                  &log_softmax<R>,
                                                  &logsumexp<R>,
                                                  &softmax_backward<R>,
                                                  &log_softmax_backward<R>,
                                                  &normalize<R>,
                                                  &moments<R>,
                                                  &normalize_backward<R>,
                                                  &normalize_slope<R>,
                                                  &normalize_columns<R>,
                                                  &slope_columns<R>};

}  // namespace
}  // namespace potl::numeric::reductions

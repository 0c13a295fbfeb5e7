// SPDX-License-Identifier: Apache-2.0
// What each instruction set offers: every function over contiguous elements.
#pragma once

#include <cstddef>

#include <potl/numeric/detail/cells.hpp>
#include <potl/numeric/elementwise.hpp>

#include "numeric/levels.hpp"

namespace potl::numeric::elementwise {

/// Element i is data[i * step]; step 0 repeats one element.
template <class Real>
struct stream {
  const Real* data;
  std::size_t step;
};

enum class combination { add_scaled, lerp, addcmul, addcdiv };

template <class Real>
struct kernels {
  void (*one)(unary, const Real* x, Real* y, std::size_t count);
  void (*slope)(gradient, const Real* dy, const Real* operand, Real* dx, std::size_t count);
  void (*two)(binary, stream<Real> x, stream<Real> y, Real* out, std::size_t count);
  /// add_scaled does not use c, lerp takes its weight there and does not use the scalar.
  void (*combine)(combination, stream<Real> a, stream<Real> b, stream<Real> c, Real scalar,
                  Real* out, std::size_t count);
  /// The scalars are those of combinations.hpp.
  void (*sgd)(const void* scalars, Real* p, const Real* g, Real* m, std::size_t count);
  void (*adam)(const void* scalars, Real* p, const Real* g, Real* m, Real* v, Real* u,
               std::size_t count);
  void (*softplus)(const void* scalars, const Real* x, Real* y, std::size_t count);
  void (*softplus_slope)(const void* scalars, const Real* dy, const Real* x, Real* dx,
                         std::size_t count);
  void (*elu)(const void* scalars, const Real* x, Real* y, std::size_t count);
  void (*elu_slope)(const void* scalars, const Real* dy, const Real* x, Real* dx,
                    std::size_t count);
  /// Of samples [first, last).
  void (*lstm)(const lstm_step<Real>&, std::size_t first, std::size_t last);
  void (*lstm_gradient)(const lstm_slope<Real>&, std::size_t first, std::size_t last);
};

using both_kernels = kernels_of_both<kernels>;

POTL_LEVELS(both_kernels, kernels)

template <class Real>
const kernels<Real>& active() {
  return active_kernels().of<Real>();
}

}  // namespace potl::numeric::elementwise

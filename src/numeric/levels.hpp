// SPDX-License-Identifier: Apache-2.0
// Kernels that every instruction set offers for float and for double, and the choice among them.
#pragma once

#include <potl/numeric/detail/isa.hpp>

namespace potl::numeric {

template <template <class> class Kernels>
struct kernels_of_both {
  Kernels<float> of_float;
  Kernels<double> of_double;

  template <class Real>
  const Kernels<Real>& of() const {
    if constexpr (sizeof(Real) == 4) {
      return of_float;
    } else {
      return of_double;
    }
  }
};

/// Those of the active instruction set.
template <class Kernels>
const Kernels& at_active_level(const Kernels& (*portable)() noexcept,
                               const Kernels& (*avx2)() noexcept,
                               const Kernels& (*avx512)() noexcept) {
  const isa level = active_isa();
  if (level >= isa::avx512) return avx512();
  if (level >= isa::avx2) return avx2();
  return portable();
}
template <class Kernels>
const Kernels& at_active_level(const Kernels& (*portable)() noexcept,
                               const Kernels& (*neon)() noexcept) {
  return active_isa() >= isa::neon ? neon() : portable();
}

}  // namespace potl::numeric

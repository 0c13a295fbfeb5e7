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

}  // namespace potl::numeric

#if defined(__x86_64__)
#define POTL_BEST_LEVEL(name)                                        \
  const ::potl::numeric::isa level = ::potl::numeric::active_isa();  \
  if (level >= ::potl::numeric::isa::avx512) return avx512_##name(); \
  if (level >= ::potl::numeric::isa::avx2) return avx2_##name();
#elif defined(__aarch64__)
#define POTL_BEST_LEVEL(name) \
  if (::potl::numeric::active_isa() >= ::potl::numeric::isa::neon) return neon_##name();
#else
#define POTL_BEST_LEVEL(name)
#endif

/// Declares portable_NAME() and those of other instruction sets, of which a build defines what its
/// processors have, and active_NAME(): those of active_isa(). Static, because the linker must not
/// merge what was compiled for different ones.
#define POTL_LEVELS(kernels, name)                         \
  const kernels& portable_##name() noexcept;               \
  const kernels& avx2_##name() noexcept;                   \
  const kernels& avx512_##name() noexcept;                 \
  const kernels& neon_##name() noexcept;                   \
  [[maybe_unused]] static const kernels& active_##name() { \
    POTL_BEST_LEVEL(name)                                  \
    return portable_##name();                              \
  }

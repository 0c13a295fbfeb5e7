// SPDX-License-Identifier: Apache-2.0
// What marks a function that kernels for CUDA call, too.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define POTL_ANYWHERE __host__ __device__
#else
#define POTL_ANYWHERE
#endif

namespace potl::numeric {

/// The zeros above the highest bit of x that is set, and those below the lowest one. x is not 0.
/// nvcc compiles std::countl_zero and std::countr_zero for a device without a word, to a constant.
POTL_ANYWHERE inline int leading_zeros(std::uint64_t x) noexcept {
#if defined(__CUDA_ARCH__)
  return __clzll(static_cast<long long>(x));
#else
  return std::countl_zero(x);
#endif
}
POTL_ANYWHERE inline int trailing_zeros(std::uint32_t x) noexcept {
#if defined(__CUDA_ARCH__)
  return __clz(static_cast<int>(__brev(x)));
#else
  return std::countr_zero(x);
#endif
}

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// potl's kernels for CUDA by C names, so that gpu.py times them in torch's process, on torch's
// tensors and stream. 0: queued; 1: refused.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <potl/core/error.hpp>
#include <potl/cuda/digest.hpp>
#include <potl/cuda/gemm.hpp>

namespace {

template <class Work>
int attempt(const Work& work) noexcept {
  try {
    work();
    return 0;
  } catch (...) {
    return 1;
  }
}

}  // namespace

extern "C" {

/// Has the device's pool keep what it has, as a program does that computes more than once.
int potl_keep_memory() {
  int device = 0;
  cudaMemPool_t pool = nullptr;
  std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  const bool is_done =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess &&
      cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all) == cudaSuccess;
  return is_done ? 0 : 1;
}

/// C = A B in a mode, all of n rows and columns, row-major.
int potl_gemm(const char* mode, const float* a, const float* b, float* c, std::int64_t n,
              void* stream) {
  return attempt([&] {
    using namespace potl::numeric;
    const arithmetic known = arithmetic_from(mode).value();
    const auto left = row_major(a, n, n), right = row_major(b, n, n);
    if (known == arithmetic::log64) {
      potl::cuda::gemm_log64({1, 0, 0, 0}, left, right, row_major(c, n, n), max_rounding_bits,
                             stream);
    } else {
      potl::cuda::gemm(known, {1, 0, 0, 0}, left, right, row_major(c, n, n), stream);
    }
  });
}

/// The content roots of `count` tensors, 32 bytes each, in the device's memory.
int potl_content_roots(const void* const* data, const std::size_t* sizes, std::size_t count,
                       void* roots, void* stream) {
  return attempt([&] {
    std::vector<potl::cuda::device_bytes> tensors(count);
    for (std::size_t i = 0; i < count; ++i) tensors[i] = {data[i], sizes[i]};
    potl::cuda::content_roots(tensors, static_cast<potl::digest*>(roots), stream);
  });
}

}  // extern "C"

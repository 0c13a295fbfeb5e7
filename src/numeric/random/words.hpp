// SPDX-License-Identifier: Apache-2.0
// Philox (core/detail/rng.hpp) for many counters at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace potl::randoms {

struct kernels {
  /// Elements 2 first to 2 (first + pairs) - 1 of the sequence of a key; pairs is a multiple of 32.
  void (*words)(std::uint64_t key, std::uint64_t stream, std::uint64_t first, std::size_t pairs,
                std::uint64_t* out);
  /// 1 where a word is below the limit, else 0; count is a multiple of 16.
  void (*below)(const std::uint64_t* words, std::size_t count, std::uint64_t limit, float* out);
  /// The normal quantile of the number in (0, 1) that is made of each word, where it is that of
  /// quantiles::centre; count is a multiple of 8.
  void (*centre)(const std::uint64_t* words, std::size_t count, double* out);
};
const kernels& portable_kernels() noexcept;
#if defined(__x86_64__)
const kernels& avx2_kernels() noexcept;
const kernels& avx512_kernels() noexcept;
#endif

}  // namespace potl::randoms

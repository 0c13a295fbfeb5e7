// SPDX-License-Identifier: Apache-2.0
// Matrix products whose bits are a function of the operands alone. docs/reference/gemm.md has the
// details.
//
// Claims: C = A B as the mode defines it (numeric/arithmetic.hpp), the same bits for every
// executor, instruction set, compiler and memory layout:
//   * ord32: k in chunks of 512; in each a chain of fused multiply-adds from +0 in ascending k; the
//     sums of the chunks are added in order. ord64 is the same in float64.
//   * cr32: the exact dot product, rounded once to float32 (round_to(x, 32) of rounding.hpp).
//   * xint24, xint16: rows of A and columns of B scaled by a power of two so that every |q| <=
//     2^(bits-1), rounded to integers (ties to even), saturated to 2^(bits-1) - 1; the exact
//     integer dot product, scaled back with one rounding; a zero is +0.
//   * log64: float64 sums in any order, then rounded to a coarser grid; elements near a tie are
//     reported (rounding.hpp).
// K = 0 gives +0. Every NaN in C is 0x7fc00000 (0x7ff8000000000000 in float64).
// Assumes round-to-nearest without flush-to-zero (numeric/detail/fp_environment.hpp), C overlaps
// neither A nor B, and A and B are not written meanwhile. Any strides, zero and negative ones
// included for A and B; elements of C are distinct. Cost: docs/reference/gemm.md, `make bench
// STEM=gemm`. Work space of a few MiB per thread is kept until the thread ends. Throws
// potl::exception (usage) when shapes do not fit. Source: docs/reference/arithmetic.md.
#pragma once

#include <cstdint>
#include <vector>

#include <potl/numeric/arithmetic.hpp>
#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/detail/matrix.hpp>
#include <potl/numeric/detail/rounding.hpp>

namespace potl::numeric {

/// Terms of one chain of ord32 and ord64.
inline constexpr std::int64_t ord_chunk = 512;

/// C = A B in ord32, cr32, xint24 or xint16; log64 has a function of its own.
void gemm(arithmetic mode, matrix<const float> a, matrix<const float> b, matrix<float> c,
          const executor& threads);

/// How many products, and how far apart their operands lie, in elements.
struct gemm_batch {
  std::int64_t count = 0;
  std::int64_t a_stride = 0;
  std::int64_t b_stride = 0;
  std::int64_t c_stride = 0;
};

/// Many products of one shape: product i has its operands at a.data + i * a_stride and so on.
void gemm(arithmetic mode, const gemm_batch& batch, matrix<const float> a, matrix<const float> b,
          matrix<float> c, const executor& threads);

/// The chain of ord32, in float64.
void gemm_ord64(matrix<const double> a, matrix<const double> b, matrix<double> c,
                const executor& threads);

/// How log64 rounds and in which order it adds.
struct log64_options {
  int bits = 32;            ///< of the grid, 23 to 32
  std::uint64_t order = 0;  ///< 0: k ascending; others: sums in a permutation of k of that number
};

/// C = A B in log64: writes the default rounding everywhere and returns, by ascending index
/// (row * columns + column), the elements whose rounding an auditor has to look up.
std::vector<near_tie> gemm_log64(matrix<const float> a, matrix<const float> b, matrix<float> c,
                                 const log64_options& options, const executor& threads);

/// The same for many products; index = (product * rows + row) * columns + column.
std::vector<near_tie> gemm_log64(const gemm_batch& batch, matrix<const float> a,
                                 matrix<const float> b, matrix<float> c,
                                 const log64_options& options, const executor& threads);

}  // namespace potl::numeric

// SPDX-License-Identifier: Apache-2.0
// Convolutions in 1, 2 and 3 dimensions whose every bit is a function of the operands.
//
// Claims: each element of each result is the dot product that docs/reference/convolution.md writes
// down, in the arithmetic of the mode, where padding takes part as +0. Nothing depends on the
// processor, on the executor or on how the work is cut. NaN results are 0x7fc00000.
// Assumes: round-to-nearest without flush-to-zero (numeric/detail/fp_environment.hpp).
// Cost: that of the matrix product of the same size. Workspace is some megabytes per thread; for
// weight gradients also up to 32 MB of partial sums, or one result when that is larger. In the
// integer modes these are 256 MB, or 8 bytes for each weight when that is more.
// Cannot: take other layouts. Tensors are contiguous, batch x channels x depth x height x width;
// one and two dimensions use leading sizes of 1.
//
// Sizes that do not fit each other throw potl::exception (usage), and nothing is written then.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <potl/numeric/arithmetic.hpp>
#include <potl/numeric/detail/executor.hpp>
#include <potl/numeric/gemm.hpp>

namespace potl::numeric {

/// The geometry. Weights have the sizes [out_channels, in_channels / groups, kernel...].
struct convolution {
  std::int64_t batch = 1;
  std::int64_t in_channels = 1;
  std::int64_t out_channels = 1;
  std::int64_t groups = 1;
  std::array<std::int64_t, 3> input{1, 1, 1};  ///< depth, height, width
  std::array<std::int64_t, 3> kernel{1, 1, 1};
  std::array<std::int64_t, 3> stride{1, 1, 1};
  std::array<std::int64_t, 3> padding{0, 0, 0};  ///< on both sides
  std::array<std::int64_t, 3> dilation{1, 1, 1};

  /// Depth, height and width of the result. Throws potl::exception (usage) for a geometry that is
  /// none: negative sizes, a kernel larger than the padded input, groups that divide no channels.
  std::array<std::int64_t, 3> output() const;
};

/// y[batch, out_channels, output...] = x[batch, in_channels, input...] with the weights w.
void convolve(arithmetic mode, const convolution& geometry, const float* x, const float* w,
              float* y, const executor& threads);

/// dx from dy: the gradient with respect to the input, and the forward pass of a transposed
/// convolution (whose input is dy and whose result has the size `geometry.input`).
void convolve_input_gradient(arithmetic mode, const convolution& geometry, const float* dy,
                             const float* w, float* dx, const executor& threads);

/// dw from x and dy: the gradient with respect to the weights.
void convolve_weight_gradient(arithmetic mode, const convolution& geometry, const float* x,
                              const float* dy, float* dw, const executor& threads);

/// The same in log64, which the functions above refuse. Each writes the default rounding everywhere
/// and returns, by ascending index into the result, the elements that are near a tie.
std::vector<near_tie> convolve_log64(const convolution& geometry, const float* x, const float* w,
                                     float* y, const log64_options& options,
                                     const executor& threads);
std::vector<near_tie> convolve_input_gradient_log64(const convolution& geometry, const float* dy,
                                                    const float* w, float* dx,
                                                    const log64_options& options,
                                                    const executor& threads);
std::vector<near_tie> convolve_weight_gradient_log64(const convolution& geometry, const float* x,
                                                     const float* dy, float* dw,
                                                     const log64_options& options,
                                                     const executor& threads);

}  // namespace potl::numeric

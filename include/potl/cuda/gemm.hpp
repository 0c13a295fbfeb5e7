// SPDX-License-Identifier: Apache-2.0
// Matrix products on a CUDA device, with the bits of numeric/gemm.hpp.
//
// Claims: C = A B in every mode (docs/reference/gemm.md), the same bits as on the CPU for every
// shape and every stride, in log64 but for elements near ties, which it lists. The tests run the
// kernels' bodies on the CPU, and on a device where there is one.
// Cost: ord32 has no memory of its own; C is read and written once for every 512 k. The integer
// modes take 3 (or 2) bytes of the queue's memory for each element of A and B, and where the depth
// exceeds 16,384, or a product has few tiles, 16 for each of C. cr32 and log64 take 72 bytes for
// each row and column, and up to 32 MiB. log64 waits for the device, so that no graph holds it.
#pragma once

#include <vector>

#include <potl/cuda/queue.hpp>
#include <potl/numeric/gemm.hpp>

namespace potl::cuda {

/// numeric::gemm(), in all modes but log64, with operands in memory of the current device, queued
/// on `stream`. C overlaps neither A nor B. Throws potl::exception (usage for shapes that do not
/// fit and modes that are not there, io for an error of the device).
void gemm(numeric::arithmetic mode, const numeric::gemm_batch& batch,
          numeric::matrix<const float> a, numeric::matrix<const float> b, numeric::matrix<float> c,
          queue stream);

/// numeric::gemm_log64() likewise, with sums in an order of the device's.
std::vector<numeric::near_tie> gemm_log64(const numeric::gemm_batch& batch,
                                          numeric::matrix<const float> a,
                                          numeric::matrix<const float> b, numeric::matrix<float> c,
                                          int bits, queue stream);

}  // namespace potl::cuda

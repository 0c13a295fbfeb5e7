// SPDX-License-Identifier: Apache-2.0
// Matrix products on a CUDA device, with the bits of numeric/gemm.hpp.
//
// Claims: C = A B in ord32, xint24 and xint16 (docs/reference/gemm.md), the same bits as on the CPU
// for every shape and every stride; the tests run the kernels' bodies on the CPU, and on a device
// where there is one.
// Cannot: the other modes: potl::exception (usage).
// Cost: ord32 has no memory of its own; C is read and written once for every 512 k. The integer
// modes take 3 (or 2) bytes of the stream's memory pool for each element of A and B, and where the
// depth exceeds 16,384, or a product has few tiles, 16 for each of C.
#pragma once

#include <potl/numeric/gemm.hpp>

namespace potl::cuda {

/// numeric::gemm() with operands in memory of the current device, queued on `stream`, a
/// cudaStream_t; nullptr is the default stream. C overlaps neither A nor B. Throws potl::exception
/// (usage for shapes that do not fit and modes that are not there, io for an error of the device).
void gemm(numeric::arithmetic mode, const numeric::gemm_batch& batch,
          numeric::matrix<const float> a, numeric::matrix<const float> b, numeric::matrix<float> c,
          void* stream);

}  // namespace potl::cuda

// SPDX-License-Identifier: Apache-2.0
// The launchers of kernels/, on simulated blocks: what potl._simulated computes with.
// NOLINTBEGIN(bugprone-suspicious-include)
#include "kernels/combine.cu"
#include "kernels/convolution.cu"
#include "kernels/digest.cu"
#include "kernels/elementwise.cu"
#include "kernels/gemm.cu"
#include "kernels/reduction.cu"
#include "kernels/update.cu"
// NOLINTEND(bugprone-suspicious-include)
